"""`dledger get`: read entries by their index."""

import argparse
import contextlib
from typing import Final

from dledger_client.client import DLedgerClient
from dledger_client.commands import entries, group_client, options, printing, streams
from dledger_client.commands.exits import ExitCode, UsageError
from dledger_client.errors import ClientError, NoEntryError
from dledger_client.read.indexes import INDEX_MAX
from dledger_client.read.missing import contents
from dledger_formats.digits import plain_int
from dledger_formats.protocol.codes import DLedgerResponseCode

TO_THE_END: Final = "end"
OF_LEADERS: Final = (
    "nothing to show: leaders append such entries for themselves; -o json shows them, too"
)


def add_parser(commands: options.Commands) -> None:
    """Define the arguments of `dledger get`."""
    parser = options.new_parser(
        commands,
        "get",
        summary="read entries by index",
        description="Read one entry or a range of entries.",
        examples={
            "dledger get 7": "entry 7",
            "dledger get 7..20": "entries 7 to 20",
            "dledger get 7.. -o json": "entries from 7 on, one line of JSON each",
            "dledger get 7 -o bytes": "the body of entry 7, byte for byte",
            "dledger get 7.. --format '%i %b\\n'": "indexes and bodies",
        },
        exit_codes="0 all entries were read, 2 usage error, 4 no such entry, 5 group unreachable.",
    )
    parser.add_argument(
        "range",
        metavar="INDEX|FIRST..[LAST]",
        nargs="?",
        help="an index, or a range that includes LAST; indexes begin at 0",
    )
    parser.add_argument(
        "--first",
        metavar="N",
        help="first index, as an alternative to the range (default: none)",
    )
    parser.add_argument(
        "--last",
        metavar="M",
        help="last index, or `end` for the end of the log (default: the first index)",
    )
    options.add_group_options(parser)
    options.add_read_options(parser)
    entries.add_options(parser)
    parser.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Read and write the entries, and return the exit code."""
    first, last = _range(arguments)
    shown = entries.selected_format(arguments)
    count, is_written = 0, False
    async with group_client.open_client(arguments) as client, streams.output() as output:
        try:
            async with contextlib.aclosing(client.get_range(first, last)) as found:
                async for entry in found:
                    count += 1
                    if (content := shown(entry)) is not None:
                        is_written = True
                        await output.write(content)
        except NoEntryError as error:
            is_before = error.code is DLedgerResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN
            missing = first if is_before or last is None else last
            log = await _contents(client, error)
            raise NoEntryError(error.code, f"there is no entry {missing}: {log}") from error
        if not count:
            await _check_begin(client, first)
    if count and not is_written:
        printing.complain(OF_LEADERS)
    return ExitCode.OK


async def _check_begin(client: DLedgerClient, first: int) -> None:
    """Raise NoEntryError if the log ends before the entry from which nothing was read.

    The next entry of the log may be missing: a reader asks for it to get what has come since. So
    the entry before it tells, with one request; Java's servers do not return their bounds.
    """
    if not first:
        return
    try:
        await client.get(first - 1)
    except NoEntryError as error:
        if error.code is DLedgerResponseCode.INDEX_OUT_OF_RANGE:
            log = await _contents(client, error)
            raise NoEntryError(error.code, f"there is no entry {first}: {log}") from error


async def _contents(client: DLedgerClient, refusal: NoEntryError) -> str:
    """Return what the log contains, or the text of the refusal if no member answers."""
    try:
        return contents(await client.bounds())
    except ClientError:
        return str(refusal)


def _range(arguments: argparse.Namespace) -> tuple[int, int | None]:
    is_twice = arguments.range is not None and arguments.last is not None
    if (arguments.range is None) == (arguments.first is None) or is_twice:
        raise UsageError("specify the entries once: INDEX, FIRST..LAST, or --first and --last")
    if arguments.range is None:
        begin = arguments.first
        end = begin if arguments.last is None else arguments.last
    else:
        begin, dots, end = arguments.range.partition("..")
        end = (end or TO_THE_END) if dots else begin
    try:
        first = plain_int(str(begin))
        last = None if end == TO_THE_END else plain_int(str(end))
    except ValueError:
        wrong = arguments.range or (begin if begin == end else f"{begin}..{end}")
        shown = wrong[: 2 * options.TEXT_SHOWN_MAX]
        raise UsageError(f"{shown!r} is no index; expected INDEX, FIRST..LAST or FIRST..") from None
    for number, text in ((first, begin), (last, end)):
        if number is not None and not 0 <= number <= INDEX_MAX:
            shown = text[: options.TEXT_SHOWN_MAX]
            raise UsageError(f"{shown} is no index; an index is 0 to {INDEX_MAX}")
    if last is not None and first > last:
        raise UsageError(f"the range {begin}..{end} is empty: its first index is above its last")
    return first, last
