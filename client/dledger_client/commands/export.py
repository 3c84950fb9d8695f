"""`dledger export`: write a log, or a part of one, to a file or to standard output."""

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from dledger_client.client import DLedgerClient
from dledger_client.commands import group_client, notice, options, printing, progress, streams
from dledger_client.commands.exits import ExitCode, UsageError
from dledger_client.commands.signals import EXIT_ON_SIGNAL, cancelled_by_signals
from dledger_client.errors import NoEntryError
from dledger_client.exports.folder import FolderLog, kept_from_members
from dledger_client.exports.group import (
    Taken,
    check_is_last,
    following_entries,
    is_sure,
    settled_entries,
)
from dledger_client.exports.records import ExportError, Head
from dledger_client.exports.writing import ExportWriter
from dledger_client.read.tail import LogBounds
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.entry import DLedgerEntry

END_WAIT_S: Final = 0.5
"""How long an export ended by a signal waits for the reader of a pipe to take the end record."""
STANDARD_OUTPUT: Final = "-"
ENTRIES: Final = " entries"


def add_parser(commands: options.Commands) -> None:
    """Define the arguments of `dledger export`."""
    parser = options.new_parser(
        commands,
        "export",
        summary="write entries to a file that `import` reads",
        description="Write the entries of a group, or of the folder of a member that is not "
        "running, to FILE. If FILE holds the beginning of an export, it is extended. Groups and "
        "folders of Java DLedger can be exported, too.",
        examples={
            "dledger export all.export": "all entries of a group",
            "dledger export --folder dledger-n0 all.export": "the entries in a member's folder",
            "dledger export --follow --until bye a.export": "end after the entry `bye`",
            "dledger export - | gzip > all.gz": "write to a pipe",
        },
        exit_codes="0 exported; 1 the folder or what FILE holds is damaged, FILE cannot be "
        "written, or the log goes on after TEXT; 2 usage error, or FILE holds something else, or "
        "FOLDER is not a member's; 4 no such entry; 5 group unreachable; "
        "128 + n ended by signal n, and what was written can be imported.",
    )
    parser.add_argument("file", metavar="FILE", help="file to write; - is standard output")
    parser.add_argument(
        "--folder",
        metavar="FOLDER",
        type=Path,
        help="export from this folder of a member, .../dledger-MEMBER (default: from the group)",
    )
    parser.add_argument(
        "--from",
        dest="first",
        metavar="INDEX",
        type=options.index,
        help="first entry (default: after the last one in FILE, or the first of the log)",
    )
    parser.add_argument(
        "--last",
        metavar="INDEX",
        type=options.index,
        help="last entry (default: the last one of the log)",
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help="go on with new entries as they are appended (default: end at the end of the log)",
    )
    parser.add_argument(
        "--until",
        metavar="TEXT",
        help="with --follow: end after the first entry whose body is TEXT (default: never)",
    )
    options.add_group_options(parser)
    progress.add_option(parser)
    parser.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Export and return the exit code."""
    _check(arguments)
    signals: list[int] = []
    task = asyncio.current_task()
    assert task is not None
    with cancelled_by_signals(task, signals):
        try:
            await _export(arguments)
        except asyncio.CancelledError:
            if not signals:
                raise
            task.uncancel()
            printing.complain("dledger: ended by a signal; run the command again to go on")
    return EXIT_ON_SIGNAL + signals[0] if signals else ExitCode.OK


async def _export(arguments: argparse.Namespace) -> None:
    """Write the entries and the end record; a cancelled task writes the end record, too."""
    async with _writer(arguments) as writer:
        first = _first(writer, arguments)
        try:
            with progress.bar(arguments.progress, None, ENTRIES) as bar:
                if arguments.folder is None:
                    reading = _from_group(writer, first, arguments, bar)
                    is_piped = arguments.file == STANDARD_OUTPUT
                    await (streams.while_read(reading) if is_piped else reading)
                else:
                    with kept_from_members(arguments.folder):
                        await _from_folder(writer, first, arguments, bar)
        except asyncio.CancelledError:
            await _end(writer, END_WAIT_S)
            raise
        await _end(writer)


async def _end(writer: ExportWriter, reader_wait_s: float | None = None) -> None:
    if writer.next_index is None:
        return
    try:
        await writer.end(reader_wait_s)
    except TimeoutError:
        printing.complain("dledger: the export has no end, since its reader takes nothing")
    else:
        _report(writer, writer.next_index)


def _check(arguments: argparse.Namespace) -> None:
    if arguments.until is not None and not arguments.follow:
        raise UsageError("--until needs --follow")
    if arguments.until == "":
        raise UsageError("--until needs a TEXT that is not empty")
    if arguments.follow and (arguments.folder is not None or arguments.last is not None):
        raise UsageError("--follow cannot be combined with --folder or --last")
    first, last = arguments.first, arguments.last
    if first is not None and last is not None and first > last:
        raise UsageError(f"--from {first} is after --last {last}")
    if arguments.file == STANDARD_OUTPUT and sys.stdout.isatty():
        raise UsageError(
            "an export is binary, and not written to a terminal: name a FILE, or use a pipe"
        )


@contextlib.asynccontextmanager
async def _writer(arguments: argparse.Namespace) -> AsyncIterator[ExportWriter]:
    try:
        if arguments.file == STANDARD_OUTPUT:
            writer = ExportWriter(os.dup(sys.stdout.fileno()))
        else:
            writer = await _extended(Path(arguments.file), arguments)
    except OSError as error:
        raise ExportError(f"cannot write {arguments.file}: {error.strerror}") from error
    try:
        yield writer
    except BrokenPipeError as error:
        raise ExportError("the export is not whole: its reader has gone") from error
    except OSError as error:
        if error.filename is not None:  # it names a file of the source
            raise ExportError(f"cannot read {error.filename}: {error.strerror}") from error
        is_file = arguments.file != STANDARD_OUTPUT
        where = arguments.file if is_file else "to standard output"
        raise ExportError(f"cannot write {where}: {error.strerror}") from error
    finally:
        writer.close()


async def _extended(path: Path, arguments: argparse.Namespace) -> ExportWriter:
    """Open a file to extend the export in it, if any, after checking all of it."""
    with progress.bar(arguments.progress, _size_bytes(path), doing="checking") as bar:
        async with notice.opening(path, notice.READING):
            return await ExportWriter.to_file(path, bar.update, _mark(arguments))


def _size_bytes(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _first(writer: ExportWriter, arguments: argparse.Namespace) -> int | None:
    """Return the index of the first entry to export; None for the first of the log."""
    first: int | None = arguments.first
    if writer.next_index is None:
        return first
    begin, end = writer.first_index, writer.next_index - 1
    if first not in (None, begin, end + 1):
        raise UsageError(
            f"{arguments.file} holds the entries {begin} to {end}; without --from, the export "
            "continues after them"
        )
    if arguments.last is not None and arguments.last < end:
        raise UsageError(
            f"{arguments.file} holds the entries {begin} to {end} already, and --last "
            f"{arguments.last} is before its end; name another FILE for an export that ends there"
        )
    return writer.next_index


async def _from_folder(
    writer: ExportWriter, first: int | None, arguments: argparse.Namespace, bar: progress.Bar
) -> None:
    """Export the log in a folder."""
    log = FolderLog(arguments.folder)
    if first is None:
        log.check_has_front()
    begin = log.begin_index if first is None else first
    taken = _taken(writer)
    last: int | None = arguments.last
    head = Head(group=arguments.group or writer.group or "", first_index=begin)
    if log.durable_index is not None:
        bar.expect(max(0, log.durable_index + 1 - begin))
    for found in log.entries(begin if taken is None else taken.index):
        if taken is not None:
            taken.check(found[0])
        entries = found if taken is None else found[1:]
        taken = None
        wanted = [entry for entry in entries if last is None or entry.index <= last]
        await writer.begin(head)
        await _write(writer, wanted, bar)
        await asyncio.sleep(0)  # a signal ends the export here
        if last is not None and writer.next_index is not None and writer.next_index > last:
            break
    if taken is not None:
        raise taken.replaced(f"{arguments.folder} ends before it")
    for wanted_index in (arguments.first, last):
        if wanted_index is not None and wanted_index >= log.next_index:
            end = log.next_index - 1
            holds = f"ends with entry {end}" if log.next_index else "holds no entry"
            cure = "; to end the export there, run it again without --last"
            raise NoEntryError(
                DLedgerResponseCode.INDEX_OUT_OF_RANGE,
                f"there is no entry {wanted_index}: {arguments.folder} {holds}"
                f"{cure if writer.entries else ''}",
            )
    await writer.begin(head)  # of a log without an entry
    if log.remark:
        printing.complain(f"dledger: {arguments.folder}: {log.remark}")


async def _from_group(
    writer: ExportWriter, first: int | None, arguments: argparse.Namespace, bar: progress.Bar
) -> None:
    """Export the log of a running group."""
    async with group_client.open_client(arguments) as client:
        bounds = await client.bounds()
        begin = bounds.begin_index if first is None else first
        last = bounds.end_index if arguments.last is None else arguments.last
        _check_bounds(bounds, begin, arguments)
        await writer.begin(Head(group=client.group, first_index=begin))
        if bar.total is None and not arguments.follow:
            bar.expect(max(0, last + 1 - begin))
        taken = _taken(writer)
        mark = _mark(arguments)
        if mark is not None and writer.mark_index is not None and taken is not None:
            if not await is_sure(client, taken, _complain):
                raise taken.replaced("another entry is there, or the log ends before it")
            await _end_at_mark(writer, client, mark, writer.mark_index)
            return
        if arguments.follow:
            runs = following_entries(client, begin, taken, mark, _complain)
        elif begin <= last or taken is not None:
            runs = settled_entries(client, begin, last, taken)
        else:
            return
        async with contextlib.aclosing(runs):
            async for entries in runs:
                await _write(writer, entries, bar)
        if mark is not None and writer.next_index is not None:
            await _end_at_mark(writer, client, mark, writer.next_index - 1)


async def _end_at_mark(
    writer: ExportWriter, client: DLedgerClient, mark: bytes, mark_index: int
) -> None:
    """Raise ExportError, after the end was written, if entries of clients follow the mark."""
    try:
        await check_is_last(client, mark, mark_index)
    except ExportError:
        await _end(writer)
        raise


def _mark(arguments: argparse.Namespace) -> bytes | None:
    return None if arguments.until is None else os.fsencode(arguments.until)


def _complain(text: str) -> None:
    printing.complain(f"dledger: {text}")


def _check_bounds(bounds: LogBounds, begin: int, arguments: argparse.Namespace) -> None:
    """Raise NoEntryError unless the log holds the entries to be exported."""
    first, end = bounds.begin_index, bounds.end_index
    if begin < first:
        code, wanted = DLedgerResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN, begin
    elif arguments.last is not None and arguments.last > end:
        code, wanted = DLedgerResponseCode.INDEX_OUT_OF_RANGE, arguments.last
    elif arguments.first is not None and arguments.first > end and not arguments.follow:
        code, wanted = DLedgerResponseCode.INDEX_OUT_OF_RANGE, arguments.first
    else:
        return
    holds = f"the log holds the entries {first} to {end}" if first <= end else "the log is empty"
    raise NoEntryError(code, f"there is no entry {wanted}: {holds}")


def _taken(writer: ExportWriter) -> Taken | None:
    last = writer.last
    return None if last is None else Taken.of(last.index, last.term, last.body)


async def _write(writer: ExportWriter, entries: list[DLedgerEntry], bar: progress.Bar) -> None:
    if entries:
        await writer.write(entries)
        bar.update(len(entries))


def _report(writer: ExportWriter, next_index: int) -> None:
    if writer.entries:
        first = next_index - writer.entries
        what = f"exported {printing.entries(writer.entries)}, {first} to {next_index - 1}"
    else:
        ends = f"ends with entry {next_index - 1}" if next_index else "is empty"
        what = f"exported no entry; the log {ends}"
    printing.complain(what)
