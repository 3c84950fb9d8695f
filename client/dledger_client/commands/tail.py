"""`dledger tail`: print entries as they are appended."""

import argparse
import contextlib

from dledger_client.client import DLedgerClient
from dledger_client.commands import common, entries
from dledger_client.commands.common import ExitCode


def add_parser(commands: common.Commands) -> None:
    """Define the arguments of `dledger tail`."""
    parser = common.new_parser(
        commands,
        "tail",
        summary="print entries as they are appended",
        description="Print entries as they are appended, until Ctrl-C. Leader changes do not "
        "interrupt it.",
        examples={
            "dledger tail": "new entries",
            "dledger tail --from 0": "all existing entries, then new ones",
            "dledger tail --last 10 -o json": "the last ten entries, then new ones",
            "dledger tail --from 7 --count 1": "wait for entry 7 and print it",
        },
        exit_codes="0 --count was reached, 2 usage error, 4 the log begins later, 5 group "
        "unreachable, 130 ended by Ctrl-C.",
    )
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument(
        "--from", dest="first", metavar="INDEX", type=common.index, help="begin with this entry"
    )
    begin.add_argument(
        "--last", metavar="N", type=common.positive_int, help="begin with the last N entries"
    )
    parser.add_argument(
        "--count", metavar="N", type=common.positive_int, help="stop after N printed entries"
    )
    common.add_group_options(parser)
    common.add_output_option(parser, entries.OUTPUT_HELP, "raw")
    parser.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Follow the log, write its entries and return the exit code."""
    async with common.open_client(arguments) as client:
        found = client.tail(await _first(client, arguments))
        written = 0
        async with contextlib.aclosing(found):
            async for entry in found:
                written += entries.write_entry(entry, as_json=arguments.output == "json")
                common.flush()
                if written == arguments.count:
                    break
    return ExitCode.OK


async def _first(client: DLedgerClient, arguments: argparse.Namespace) -> int | None:
    first: int | None = arguments.first
    if arguments.last is not None:
        bounds = await client.bounds()
        first = max(bounds.begin_index, bounds.end_index + 1 - arguments.last)
    return first
