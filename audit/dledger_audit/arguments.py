"""The command lines of `dledger-audit`; needs no library."""

import argparse
import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from dledger_audit.executors import masters
from dledger_audit.output_places import history, writable
from dledger_audit.places import folder
from dledger_formats.command_lines import Parser
from dledger_formats.digits import plain_int
from dledger_formats.quantities import quantity_bytes
from pyspark_dledger import bearer

EXECUTORS: Final = 2
EXECUTORS_MAX: Final = 100
EXECUTORS_WITHIN_S: Final = 300
OPENING_WITHIN_S: Final = 3600
"""A member verifies its whole log at a few hundred MB a second."""
OWN_SETTINGS: Final = frozenset(
    {
        "spark.master", "spark.executor.instances", "spark.cores.max",
        "spark.dynamicAllocation.enabled",
    }
)  # fmt: skip
"""Settings that follow from the options: the number of executors divides the rate of reading."""
TOMBSTONE_ENTRIES: Final = 1_000_000
READ_RATE: Final = "50Mi"
"""Bytes a second. A disk of a member gives several times as much, and its clients need the rest."""
COMPACT: Final = "compact"
VERIFY_COMPACTION: Final = "verify-compaction"
_EPILOG: Final = (
    "Exit codes: 0 the logs are Sound; 2 usage error; 3 Incomplete; 4 Damaged; 5 Diverged; 70 the "
    "audit failed, or an output or the history could not be written."
)
_COMPACT_EPILOG: Final = (
    "Decoders: register (8 bytes, the first 4 are the key), kv (KEY=VALUE; an empty VALUE deletes "
    'the key), json:FIELD (a JSON object; "deleted": true deletes the key), rocketmq (topic, queue '
    "and KEYS; an empty body deletes the key), module:function (bytes to None, key, or (key, "
    "whether it deletes the key)). Exit codes: 0 the archive is as new as it can be; 6 refused, "
    "and nothing was changed; 70 failed."
)
_VERIFY_EPILOG: Final = (
    "Exit codes: 0 the archive is right; 3 some entries could not be compared; 4 the archive is "
    "wrong; 6 the archive or its source cannot be read; 70 failed."
)


def parse(arguments: Sequence[str]) -> tuple[str, argparse.Namespace, Parser]:
    """Return the command, which is empty for an audit, its options, and its parser.

    Exits after the help, or for a wrong option.
    """
    command = arguments[0] if arguments else ""
    if command == COMPACT:
        chosen = compact_parser()
    elif command == VERIFY_COMPACTION:
        chosen = verify_parser()
    else:
        chosen = parser()
        if command and not command.startswith("-"):
            chosen.error(
                f"{command!r} is no command: there are {COMPACT} and {VERIFY_COMPACTION}, and an "
                "audit has options only"
            )
        return "", chosen.parse_args(arguments), chosen
    return command, chosen.parse_args(arguments[1:]), chosen


def compact_parser() -> Parser:
    """Create the parser of `compact`."""
    chosen = Parser(
        prog=f"dledger-audit {COMPACT}",
        description="Write a group's log to an archive that keeps the last entry of each key. The "
        "members are only read.",
        epilog=_COMPACT_EPILOG,
    )
    chosen.add_argument("--group", type=_group, required=True, help="name of the group")
    chosen.add_argument(
        "--member", action="append", required=True, metavar="ID=PLACE",
        help="a voter's URL, or its folder if it is stopped; repeat for each voter",
    )  # fmt: skip
    chosen.add_argument("--decoder", required=True, metavar="NAME", help="how to find the keys")
    chosen.add_argument(
        "--archive", type=folder, required=True, metavar="FOLDER",
        help="the archive: a new folder, or an archive of this group to continue; or the URI of a "
        "Hadoop file system, such as hdfs://HOST/FOLDER",
    )  # fmt: skip
    chosen.add_argument(
        "--tombstone-entries", type=_count, default=TOMBSTONE_ENTRIES, metavar="N",
        help="keep a tombstone until this many entries lie between it and the clean point "
        "(default: %(default)s)",
    )  # fmt: skip
    _add_opening(chosen)
    _add_token(chosen)
    _add_spark(chosen)
    _add_rate(chosen)
    _add_output(chosen)
    return chosen


def verify_parser() -> Parser:
    """Create the parser of `verify-compaction`."""
    chosen = Parser(
        prog=f"dledger-audit {VERIFY_COMPACTION}",
        description="Prove an archive against the log that it was made of. Changes nothing.",
        epilog=_VERIFY_EPILOG,
    )
    chosen.add_argument(
        "source", metavar="SOURCE",
        help="the group's voters, as ID=PLACE,...; a place is a URL, or a stopped one's folder",
    )  # fmt: skip
    chosen.add_argument(
        "archive", type=folder, metavar="ARCHIVE", help="the archive's folder, or its URI"
    )
    chosen.add_argument(
        "--previous", type=folder, metavar="ARCHIVE",
        help="the archive before this one, for entries that the members no longer have "
        "(default: none)",
    )  # fmt: skip
    _add_opening(chosen)
    _add_token(chosen)
    _add_rate(chosen)
    _add_output(chosen)
    return chosen


def _add_output(chosen: Parser) -> None:
    chosen.add_argument(
        "-o", "--output", choices=("text", "json"), default="text",
        help="output format (default: %(default)s)",
    )  # fmt: skip


def _add_rate(chosen: Parser) -> None:
    chosen.add_argument(
        "--read-rate", type=_rate, default=READ_RATE, metavar="RATE",
        help="bytes a second that are read from each member, such as 50Mi; 0 for no bound "
        "(default: %(default)s)",
    )  # fmt: skip


def _add_opening(chosen: Parser) -> None:
    chosen.add_argument(
        "--opening-within", type=_seconds, default=OPENING_WITHIN_S, metavar="SECONDS",
        help="seconds to wait for a member that says that it opens its log "
        "(default: %(default)s)",
    )  # fmt: skip


def _add_token(chosen: Parser) -> None:
    chosen.add_argument(
        "--token-file", type=os.path.abspath, metavar="FILE",
        help="file with the group's audit token, which members of a group with an administration "
        f"token demand (default: the variable {bearer.VARIABLE}, or none)",
    )  # fmt: skip


def _add_spark(chosen: Parser) -> None:
    chosen.add_argument(
        "--master",
        type=_master,
        help="Spark master: local[N], spark://HOST:PORT or k8s://URL (default: local[N], where N "
        "fits the CPUs and the memory that this process may use)",
    )
    chosen.add_argument(
        "--executors", type=_executors, default=EXECUTORS, metavar="N",
        help="the most executors to start, unless the master is local (default: %(default)s)",
    )  # fmt: skip
    chosen.add_argument(
        "--executors-within", type=_seconds, default=EXECUTORS_WITHIN_S, metavar="SECONDS",
        help="fail once work has waited for so many seconds without an executor "
        "(default: %(default)s)",
    )  # fmt: skip
    chosen.add_argument(
        "--conf", action="append", type=_setting, default=[], metavar="KEY=VALUE",
        help="a setting of Spark, unless the master is local; repeat for each (default: none)",
    )  # fmt: skip


def _group(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("'' is no group")
    return text


def _master(text: str) -> str:
    if not masters.is_master(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no Spark master: use local[N], spark://HOST:PORT or k8s://URL"
        )
    return text


def _whole(text: str) -> int:
    try:
        return plain_int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from error


def _executors(text: str) -> int:
    number = _whole(text)
    if not 1 <= number <= EXECUTORS_MAX:
        raise argparse.ArgumentTypeError(f"{number} is not between 1 and {EXECUTORS_MAX}")
    return number


def _seconds(text: str) -> int:
    number = _whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not above 0")
    return number


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (equals and key.startswith("spark.")):
        raise argparse.ArgumentTypeError(f"{text!r} is not a setting such as spark.task.cpus=2")
    if key in OWN_SETTINGS:
        raise argparse.ArgumentTypeError(
            f"{key} cannot be set, because the number of executors divides the rate of reading: "
            "use --master and --executors"
        )
    return key, value


def _rate(text: str) -> int:
    try:
        return quantity_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a rate: use a number of bytes a second, such as 50Mi or 1Gi, or 0"
        ) from error


def _count(text: str) -> int:
    number = _whole(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{number} is negative")
    return number


def _add_amounts(top: Parser) -> None:
    """Define the options about what compaction would drop."""
    top.add_argument(
        "--decoder",
        default="",
        metavar="NAME",
        help="how to find the keys: also report how much of each segment is live, dead or a "
        "tombstone by the rules of `dledger-audit compact`, which reads the log once more "
        "(default: none)",
    )
    top.add_argument(
        "--tombstone-entries", type=_count, default=TOMBSTONE_ENTRIES, metavar="N",
        help="with --decoder: a tombstone is dead once this many entries lie between it and the "
        "clean point (default: %(default)s)",
    )  # fmt: skip


def parser() -> Parser:
    """Create the parser of an audit."""
    top = Parser(
        prog="dledger-audit",
        description="Audit the logs of a DLedger group.",
        epilog="`dledger-audit compact` writes a group's log to an archive that keeps the last "
        "entry of each key, and `dledger-audit verify-compaction` proves such an archive. "
        + _EPILOG,
    )
    top.add_argument("--group", type=_group, required=True, help="name of the group")
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
        "--history", type=history, metavar="FOLDER",
        help="keep digests of what was read in this folder, and compare with what earlier audits "
        "of the group kept there; or the URI of a Hadoop file system (default: none)",
    )  # fmt: skip
    top.add_argument(
        "--since-last",
        action="store_true",
        help="read what earlier audits did not read, and a seventh of what they did; needs "
        "--history (default: read everything)",
    )
    _add_amounts(top)
    top.add_argument(
        "--summary-file", type=lambda text: Path(writable(text)), metavar="FILE",
        help="file to write the summary to, as JSON (default: none)",
    )  # fmt: skip
    top.add_argument(
        "--html",
        type=writable,
        metavar="FILE",
        help="file to write one HTML page to, which opens no URL; - writes it after the report "
        "(default: none)",
    )
    top.add_argument(
        "--verdict-exits-0",
        action="store_true",
        help="exit with 0 whatever the verdict is: a Job that has a result did not fail "
        "(default: 0 only if the logs are Sound)",
    )
    _add_opening(top)
    _add_token(top)
    _add_spark(top)
    _add_rate(top)
    top.add_argument(
        "--output",
        choices=("text", "json"),
        default="text",
        help="what to print: a report as text or as JSON (default: %(default)s)",
    )
    top.add_argument(
        "--version", action="version", version=f"%(prog)s {version('dledger-operator')}"
    )
    return top
