"""`dledger tail`: entries as they are appended."""

import argparse
import contextlib

from dledger_client.client import DLedgerClient
from dledger_client.commands import common, entries
from dledger_client.commands.common import ExitCode


def add_parser(commands: common.Commands) -> None:
    """Say what `dledger tail` takes."""
    parser = common.new_parser(
        commands,
        "tail",
        what="print entries as they are appended",
        description="Print the entries appended from now on, until Ctrl-C; across leaders too.",
        examples={
            "dledger tail": "what comes from now on",
            "dledger tail --from 0": "all there is, and then what comes",
            "dledger tail --last 10 -o json": "the last ten, and then what comes",
            "dledger tail --from 7 --count 1": "entry 7, as soon as it is there",
        },
        exit_codes="0 --count was reached, 2 usage, 4 the log begins later, 5 group unreachable, "
        "130 ended by Ctrl-C.",
    )
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument("--from", dest="first", metavar="INDEX", type=common.index)
    begin.add_argument(
        "--last", metavar="N", type=common.positive_int, help="begin with the last N entries"
    )
    parser.add_argument(
        "--count", metavar="N", type=common.positive_int, help="end after N entries are written"
    )
    common.add_group_options(parser)
    common.add_output_option(parser, entries.OUTPUT_HELP, "raw")
    parser.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Follow the log and write entries; return the exit code."""
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
