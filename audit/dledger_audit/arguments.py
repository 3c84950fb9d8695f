"""The command line of `dledger-audit`; needs no library."""

import argparse
from importlib.metadata import version
from pathlib import Path


def parser() -> argparse.ArgumentParser:
    """Create the parser."""
    top = argparse.ArgumentParser(
        prog="dledger-audit", description="Audit the logs of a DLedger group."
    )
    top.add_argument("--group", required=True, help="name of the group")
    top.add_argument(
        "--member", action="append", required=True, metavar="ID=URL",
        help="URL of a member's HTTP port, such as http://orders-n0:40912; repeat for each member",
    )  # fmt: skip
    top.add_argument(
        "--level",
        choices=("full",),
        default="full",
        help="full: check every byte of every entry (default: %(default)s)",
    )
    top.add_argument(
        "--summary-file", type=Path, help="file to write the summary to, as JSON (default: none)"
    )
    top.add_argument("--master", default="local[*]", help="Spark master (default: %(default)s)")
    top.add_argument(
        "--output",
        choices=("text", "json"),
        default="text",
        help="what to print: a report or the summary as JSON (default: %(default)s)",
    )
    top.add_argument(
        "--version", action="version", version=f"%(prog)s {version('dledger-operator')}"
    )
    return top
