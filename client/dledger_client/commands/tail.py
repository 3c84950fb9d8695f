"""`dledger tail`: print entries as they are appended."""

import argparse
import contextlib
from typing import Final

from dledger_client.client import DLedgerClient
from dledger_client.commands import entries, group_client, options, printing, streams
from dledger_client.commands.exits import ExitCode
from dledger_formats.log import disk

LOOK_BACK_MAX: Final = 1 << 20
"""How many entries --last looks at, at most, to find those that it must print."""


def add_parser(commands: options.Commands) -> None:
    """Define the arguments of `dledger tail`."""
    parser = options.new_parser(
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
        "--from",
        dest="first",
        metavar="INDEX",
        type=options.index,
        help="begin with this entry (default: the next new one)",
    )
    begin.add_argument(
        "--last",
        metavar="N",
        type=options.positive_int,
        help="begin with the last N entries; if N is at most "
        f"{LOOK_BACK_MAX}, raw output counts only those that it prints (default: none)",
    )
    parser.add_argument(
        "--count",
        metavar="N",
        type=options.positive_int,
        help="stop after N printed entries (default: never)",
    )
    options.add_group_options(parser)
    options.add_read_options(parser)
    entries.add_options(parser)
    parser.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Follow the log, write its entries and return the exit code."""
    shown = entries.selected_format(arguments)
    async with group_client.open_client(arguments) as client, streams.output() as output:
        await streams.while_read(_write_entries(client, arguments, shown, output))
    return ExitCode.OK


async def _write_entries(
    client: DLedgerClient,
    arguments: argparse.Namespace,
    shown: entries.Format,
    output: streams.Output,
) -> None:
    found = client.tail(await _first(client, arguments))
    written = 0
    async with contextlib.aclosing(found):
        async for entry in found:
            if (content := shown(entry)) is not None:
                written += 1
                await output.write(content)
            if written == arguments.count:
                break


async def _first(client: DLedgerClient, arguments: argparse.Namespace) -> int | None:
    first: int | None = arguments.first
    if arguments.last is None and first is None:
        return None
    bounds = await client.bounds()
    end, begin = bounds.end_index, bounds.begin_index
    if first is not None:
        if first > end + 1:
            log = f"the log ends with entry {end}" if end >= 0 else "the log is empty"
            printing.complain(f"dledger: {log}; waiting for entry {first}")
        return first
    first = max(begin, end + 1 - arguments.last)
    left = LOOK_BACK_MAX - arguments.last
    if arguments.output == "json" or first == begin or left < 0:
        return first  # every entry is printed, there are no others, or there are too many to count
    missing: int = arguments.last - len(await _printed(client, first, end))
    step = arguments.last
    # Leaders' own entries are not printed: look at twice as many before, and so on.
    while missing > 0 and first > begin and left > 0:
        step = min(2 * step, left)
        left -= step
        before, first = first, max(begin, first - step)
        printed = await _printed(client, first, before - 1)
        if len(printed) >= missing:
            return printed[-missing]
        missing -= len(printed)
    return first


async def _printed(client: DLedgerClient, first: int, last: int) -> list[int]:
    """Return the indexes of the entries of a range that are printed as raw bodies."""
    if first > last:
        return []
    async with contextlib.aclosing(client.get_range(first, last)) as read:
        return [entry.index async for entry in read if entry.magic == disk.NORMAL]
