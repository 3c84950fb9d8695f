"""`dledger get`: read entries by their index."""

import argparse
import contextlib
from typing import Final

from dledger_client.commands import common, entries
from dledger_client.commands.common import ExitCode, UsageError

TO_THE_END: Final = "end"


def add_parser(commands: common.Commands) -> None:
    """Say what `dledger get` takes."""
    parser = common.new_parser(
        commands,
        "get",
        what="read entries by index",
        description="Read one entry, or all from one index to another.",
        examples={
            "dledger get 7": "entry 7",
            "dledger get 7..20": "the entries 7 to 20",
            "dledger get 7.. -o json": "all from 7 on, a line of JSON each",
        },
        exit_codes="0 all were read, 2 usage, 4 there is no such entry, 5 group unreachable.",
    )
    parser.add_argument(
        "range", metavar="INDEX|FIRST..[LAST]", nargs="?", help="counted from 0, LAST included"
    )
    parser.add_argument("--first", metavar="N", type=int, help="the same in two options")
    parser.add_argument("--last", metavar="M", help="an index, or `end` for the end of the log")
    common.add_group_options(parser)
    common.add_output_option(parser, entries.OUTPUT_HELP, "raw")
    parser.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Read and write entries; return the exit code."""
    first, last = _range(arguments)
    async with common.open_client(arguments) as client:
        found = client.get_range(first, last)
        async with contextlib.aclosing(found):
            async for entry in found:
                entries.write_entry(entry, as_json=arguments.output == "json")
    return ExitCode.OK


def _range(arguments: argparse.Namespace) -> tuple[int, int | None]:
    if (arguments.range is None) == (arguments.first is None):
        raise UsageError("name the entries once: INDEX, FIRST..LAST, or --first and --last")
    if arguments.range is None:
        begin, end = str(arguments.first), arguments.last or str(arguments.first)
    else:
        begin, dots, end = arguments.range.partition("..")
        end = (end or TO_THE_END) if dots else begin
    try:
        first = int(begin)
        last = None if end == TO_THE_END else int(end)
    except ValueError:
        raise UsageError(f"{begin}..{end}: an index or `end` is expected") from None
    if first < 0 or (last is not None and last < first):
        raise UsageError(f"{begin}..{end} is no range of indexes")
    return first, last
