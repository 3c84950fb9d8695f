"""`dledger import`: append the entries of an export to a group, in order and once."""

import argparse
import asyncio
import contextlib
import errno
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

from dledger_client.append.outcomes import Acknowledged, Outcome, Refused, Unknown
from dledger_client.client import DLedgerClient
from dledger_client.commands import (
    group_client,
    import_guard,
    notice,
    options,
    printing,
    progress,
)
from dledger_client.commands.exits import ExitCode, UsageError
from dledger_client.commands.import_mapping import NOT_ALL_WRITTEN, Mapping
from dledger_client.commands.lines import read_chunks
from dledger_client.commands.named_producer import NamedProducer
from dledger_client.commands.signals import EXIT_ON_SIGNAL, cancelled_by_signals
from dledger_client.errors import RefusedError
from dledger_client.exports.reading import ExportDecoder, verify_file
from dledger_client.exports.records import ExportedEntry, ExportError
from dledger_client.opening import open_file
from dledger_formats.console import OutputError
from dledger_formats.log import disk
from dledger_formats.protocol.codes import DLedgerResponseCode

STANDARD_INPUT: Final = "-"
PRODUCER: Final = "import"
_PERMANENT: Final = (DLedgerResponseCode.UNEXPECTED_ARGUMENT, DLedgerResponseCode.UNSUPPORTED)
"""Refusals that do not pass."""


def add_parser(commands: options.Commands) -> None:
    """Define the arguments of `dledger import`."""
    parser = options.new_parser(
        commands,
        "import",
        summary="append the entries of an export",
        description="Append each entry of FILE, which `dledger export` wrote, once and in order, "
        "and print the new indexes. If the command is interrupted, run it again with the same "
        "FILE, which may have grown. Entries that leaders appended for themselves are left out.",
        examples={
            "dledger import all.export": "into an empty group",
            "dledger import --append b.export": "after the entries of the group",
            "gunzip < all.gz | dledger import -": "from a pipe",
        },
        exit_codes="0 all imported; 1 the export was cut or is damaged, or its order is "
        "lost, or the indexes could not be written; 2 usage error, FILE cannot be read or is not "
        "an export, or the group is not empty; 3 an outcome is unknown; 4 refused; 5 group "
        "unreachable; 128 + n ended by signal n. After 3, 5 and a signal, and after 4 unless the "
        "message says otherwise, run the command again.",
    )
    parser.add_argument("file", metavar="FILE", help="file to read; - is standard input")
    parser.add_argument(
        "--append",
        action="store_true",
        help="import into a group that has entries (default: only into an empty one)",
    )
    parser.add_argument(
        "--producer",
        metavar="NAME",
        default=PRODUCER,
        help="name under which this machine remembers what it has imported (default: %(default)s)",
    )
    options.add_group_options(parser)
    progress.add_option(parser)
    options.add_output_option(
        parser, "text: one line for each run of indexes; json: the same as JSON"
    )
    parser.set_defaults(run=run)


class OrderLostError(ExportError):
    """Entries are in the group, but not in the order of the export."""


async def run(arguments: argparse.Namespace) -> int:
    """Import and return the exit code."""
    signals: list[int] = []
    task = asyncio.current_task()
    assert task is not None
    code: int = ExitCode.OK
    with cancelled_by_signals(task, signals):
        try:
            code = await _import(arguments)
        except asyncio.CancelledError:
            if not signals:
                raise
            task.uncancel()
            printing.complain("dledger: ended by a signal; run the command again to go on")
    return EXIT_ON_SIGNAL + signals[0] if signals else code


async def _import(arguments: argparse.Namespace) -> ExitCode:
    async with (
        _input(arguments) as file,
        group_client.open_client(arguments, idempotent=True) as client,
    ):
        with NamedProducer.opened(arguments.producer, client.group, "entry") as producer:
            if producer.is_new and not arguments.append:
                await import_guard.require_empty(client)
            await _begin(client, producer)
            async with Mapping.opened(producer.run, as_json=arguments.output == "json") as mapping:
                importing = _Import(client, producer, mapping, arguments)
                if not arguments.append:
                    await importing.require_own_entries(None)
                failed = await importing.run(file)
    return _exit_code(failed, mapping.problem)


async def _begin(client: DLedgerClient, producer: NamedProducer) -> None:
    """Register the producer, or continue an earlier run. Raises as `NamedProducer.begin` does."""
    try:
        await producer.begin(client)
    except RefusedError as error:
        if error.code is not DLedgerResponseCode.UNSUPPORTED:
            raise
        raise RefusedError(
            error.code,
            f"group {client.group} takes no import: its servers do not support idempotent "
            f"appends. Java's never do, and in the group of a broker only the broker appends",
        ) from error


def _exit_code(failed: Outcome | None, output_problem: Exception | None) -> ExitCode:
    """Return the exit code; as for `append`, a reader that has exited is not a failure."""
    if isinstance(output_problem, OutputError):
        printing.complain(f"dledger: {output_problem}; {NOT_ALL_WRITTEN}")
    if failed is None:
        return ExitCode.FAILED if isinstance(output_problem, OutputError) else ExitCode.OK
    if isinstance(failed, Unknown):
        return ExitCode.UNKNOWN
    assert not isinstance(failed, Acknowledged)
    is_unreachable = failed.code is DLedgerResponseCode.METADATA_ERROR
    return ExitCode.UNREACHABLE if is_unreachable else ExitCode.REFUSED


@contextlib.asynccontextmanager
async def _input(arguments: argparse.Namespace) -> AsyncIterator[int]:
    """Open the export; check all of it first if it is a file. Raises UsageError, ExportError."""
    name: str = arguments.file
    if name == STANDARD_INPUT:
        if sys.stdin is None:
            raise UsageError("cannot read -: standard input is closed")
        yield sys.stdin.fileno()
        return
    try:
        async with notice.opening(name, notice.WRITING):
            file = await open_file(name, os.O_RDONLY)
    except OSError as error:
        raise UsageError(f"cannot read {name}: {error.strerror}") from error
    try:
        found = os.fstat(file)
        if stat.S_ISDIR(found.st_mode):
            raise UsageError(f"cannot read {name}: {os.strerror(errno.EISDIR)}")
        if stat.S_ISREG(found.st_mode):
            with progress.bar(arguments.progress, found.st_size, doing="checking") as bar:
                await verify_file(Path(name), bar.update)
        yield file
    finally:
        os.close(file)


class _Import:
    """One run of the command. Only one request is in flight, which keeps the order."""

    def __init__(
        self,
        client: DLedgerClient,
        producer: NamedProducer,
        mapping: Mapping,
        arguments: argparse.Namespace,
    ) -> None:
        self._client = client
        self._producer = producer
        self._arguments = arguments
        self._mapping = mapping
        # The index of the last entry in the group, which may be of an earlier run.
        self._last_index = None if producer.run is None else producer.run[1] + producer.run[2] - 1
        self._left_out = 0
        # The last imported entry, if the export begins after the first one that was imported.
        self._continued_after: int | None = None

    async def require_own_entries(self, last: int | None) -> None:
        """Raise UsageError if another client has appended after the last imported entry."""
        first = 0 if self._last_index is None else self._last_index + 1
        registration = self._producer.registration
        await import_guard.require_own_entries(self._client, first, last, registration)

    async def run(self, file: int) -> Outcome | None:
        """Import the export; return the outcome of the entry that failed, or None."""
        size = os.fstat(file).st_size or None
        failed = None
        try:
            with progress.bar(self._arguments.progress, size) as bar:
                async for entries in self._pieces(file, bar):
                    if failed := await self._append(entries):
                        break
        finally:
            self._producer.save()
            has_new = self._producer.acknowledged > self._producer.skipped
            if has_new:
                self._mapping.end_run()
            self._report()
        if failed is None:
            self._producer.check_end()
            if not has_new:  # of an earlier run, now that the export is known to be the same
                self._mapping.end_run()
            await self._producer.complete(self._client, self._last_index if has_new else None)
        return failed

    def _report(self) -> None:
        """Print what was imported, even if the export is damaged further on."""
        imported = self._producer.acknowledged - self._producer.skipped
        printing.complain(
            f"imported {printing.entries(imported)}; imported before: {self._producer.skipped}; "
            f"left out: {printing.entries(self._left_out)} of leaders"
        )

    async def _pieces(self, file: int, bar: progress.Bar) -> AsyncIterator[list[tuple[int, bytes]]]:
        """Yield source indexes and bodies, as the export arrives. Raises ExportError."""
        name = "standard input" if self._arguments.file == STANDARD_INPUT else self._arguments.file
        decoder = ExportDecoder(name)
        try:
            async for piece in read_chunks(file):
                is_first, entries = decoder.head is None, decoder.feed(piece)
                if is_first and decoder.head is not None:
                    self._note_beginning(decoder.head.first_index)
                if self._continued_after is not None:
                    entries = await self._without_imported(entries, self._continued_after)
                yield list(self._wanted(entries))
                if decoder.damage is not None:
                    raise decoder.damage
                bar.update(len(piece))
        except OSError as error:
            raise UsageError(f"cannot read {name}: {error.strerror}") from error
        decoder.finish()
        if self._continued_after is not None and decoder.next_index <= self._continued_after:
            raise UsageError(
                f"the export ends with entry {decoder.next_index - 1}, but entries up to "
                f"{self._continued_after} are imported"
            )

    def _note_beginning(self, first: int) -> None:
        """Note the first index of the export, which may lack entries that are imported.

        Raises UsageError if it lacks others as well.
        """
        producer, run = self._producer, self._producer.run
        if run is None or producer.source_begin is None:
            producer.source_begin = first
        if run is None or first <= producer.source_begin:
            return  # all bodies are compared with the record
        last = run[0] + run[2] - 1
        if first > last + 1:
            raise UsageError(
                f"the export begins with entry {first}, and the last imported one is entry {last}: "
                f"entries {last + 1} to {first - 1} are missing. Import an export that has them, "
                f"such as one `--from {last}`; if the old group no longer has them, all of it must "
                f"be imported again, into an empty group and under another --producer"
            )
        self._continued_after = last
        producer.begin_after_record()

    async def _without_imported(
        self, entries: list[ExportedEntry], last: int
    ) -> list[ExportedEntry]:
        """Return the entries after `last`. Raises UsageError if that one was not imported."""
        for entry in entries:
            if entry.index == last:
                assert self._last_index is not None
                if (await self._client.get(self._last_index)).body != entry.body:
                    raise UsageError(
                        f"entry {last} of the export is not the one that was imported: the export "
                        "is of another log"
                    )
        return [entry for entry in entries if entry.index > last]

    def _wanted(self, entries: list[ExportedEntry]) -> Iterator[tuple[int, bytes]]:
        for entry in entries:
            if entry.kind != disk.NORMAL:
                self._left_out += 1
            elif self._producer.takes(entry.body):
                yield entry.index, entry.body

    async def _append(self, entries: list[tuple[int, bytes]]) -> Outcome | None:
        """Append entries; return the outcome of the one that failed, or None."""
        appending = self._client.append_in_order([body for _, body in entries])
        async with contextlib.aclosing(appending) as outcomes:
            async for outcome in outcomes:
                source = entries[outcome.number][0]
                if not isinstance(outcome, Acknowledged):
                    await self._note_failure(source, outcome)
                    return outcome
                await self._note_appended(source, outcome)
        return None

    async def _note_failure(self, source: int, outcome: Unknown | Refused) -> None:
        """Note and print that an entry was not imported."""
        await self._producer.note(outcome)
        if isinstance(outcome, Refused):
            self._producer.note_nothing_pending()
        hint = " Run the command again: it continues where it ended"
        if DLedgerResponseCode.UNKNOWN_PRODUCER.name in outcome.reason:
            hint = self._producer.forgotten_hint(self._arguments.producer)
        elif any(code.name in outcome.reason for code in _PERMANENT):
            hint = " A further run would not import it either, nor any entry after it"
        printing.complain(f"dledger: entry {source} was not imported: {outcome.reason}.{hint}")

    async def _note_appended(self, source: int, outcome: Acknowledged) -> None:
        """Note the new index of an entry. Raises OrderLostError or UsageError."""
        if self._last_index is not None and outcome.index <= self._last_index:
            raise OrderLostError(
                f"entry {source} of the export is entry {outcome.index}, before entry "
                f"{self._last_index}, which precedes it in the export: group "
                f"{self._client.group} does not have the order of the export. Empty the "
                f"group, remove {self._producer.path}, and begin the import again"
            )
        confirmed = await self._producer.confirmed(outcome)
        if isinstance(confirmed, Refused):
            raise UsageError(confirmed.reason)
        is_next = self._last_index is not None and outcome.index == self._last_index + 1
        if not (is_next or self._arguments.append):
            await self.require_own_entries(outcome.index - 1)
        self._last_index = outcome.index
        self._mapping.add(source, outcome.index)
        self._producer.run = self._mapping.run
        await self._producer.note(outcome)
        await self._mapping.write()
