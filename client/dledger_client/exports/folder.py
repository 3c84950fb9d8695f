"""The entries in the folder of a member that is not running; Java's folders have the same layout.

The log of a killed member may end with entries that were not acknowledged, and with part of one.
Java leaves the bytes after a truncation in place.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dledger_client.errors import NoEntryError
from dledger_client.exports.records import ExportError, WrongSourceError
from dledger_formats.lock_holder import holder_of
from dledger_formats.log import disk, properties
from dledger_formats.log.disk import DamagedRecordError
from dledger_formats.log.scanning import EntryScan, scan_entries
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.entry import DLedgerEntry, entries_from_disk

WINDOW_BYTES: Final = 2 * disk.ENTRY_SIZE_MAX
SCAN_ENTRIES_MAX: Final = 8192
LOCK_FILE: Final = "lock"
CHECKPOINT_FILE: Final = "checkpoint"
_MAGIC: Final = re.compile(rb"\0\0\0[\x01\x02]")
"""The first bytes of an entry, `disk.ENTRY_MAGICS`."""


@contextmanager
def kept_from_members(folder: Path) -> Iterator[None]:
    """Let no member of this project open a folder. Raises ExportError if one has it open.

    Java's folders have no lock. A shared lock is enough, and admits other exports.
    """
    path = folder / LOCK_FILE
    if not path.is_file():
        yield
        return
    with path.open("rb", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = holder_of(path)  # None if it runs in another PID namespace
            by = "" if holder is None else f", process {holder}"
            raise ExportError(
                f"{folder} is in use by a running member{by}; export from the group instead"
            ) from None
        except OSError:  # a file system without locks, on which no member could run
            pass
        yield


class FolderLog:
    """The log in a folder. `entries` may be called once."""

    def __init__(self, folder: Path) -> None:
        """Open the log; raises ExportError. Use it within `kept_from_members`."""
        if not (folder / disk.DATA_FOLDER).is_dir():
            raise WrongSourceError(
                f"{folder} is not a member's folder: it has no {disk.DATA_FOLDER}/; pass the "
                "folder below the store's base folder, for example dledger-n0"
            )
        self._folder = folder
        checkpoint = _read_checkpoint(folder)
        self.durable_index = checkpoint.get("endIndex")
        """The index up to which the log is durable, by the checkpoint; None if that is unknown."""
        self._recorded_begin = checkpoint.get("beginIndex")  # None in a file that Java wrote
        self._segments = _segments(folder / disk.DATA_FOLDER)
        self._leave_out_removed()
        self.begin_index, self._index, self._chain_crc = 0, 0, 0 if self._starts_at_0 else None
        self._term = 0
        self.remark = ""
        """A remark on the bytes after the last entry; empty if nothing was written there."""
        if not self._starts_at_0 and self._segments:
            self.begin_index = self._index = self._first_header().index

    @property
    def next_index(self) -> int:
        """The index after the last entry that was read."""
        return self._index

    def check_has_front(self) -> None:
        """Raise ExportError if the files begin after the first entry of the log."""
        if self._recorded_begin is not None and self.begin_index > self._recorded_begin:
            raise ExportError(
                f"{self._folder}: entry {self._recorded_begin} is missing: the files in "
                f"{disk.DATA_FOLDER}/ begin with entry {self.begin_index}, but the "
                f"{CHECKPOINT_FILE} says that the log began with entry {self._recorded_begin}. "
                "Restore the files, or export the folder of another member; --from "
                f"{self.begin_index} exports what is there"
            )

    @property
    def _starts_at_0(self) -> bool:
        return not self._segments or disk.start_offset(self._segments[0].name) == 0

    def _leave_out_removed(self) -> None:
        """Forget segments before the recorded beginning: a crash interrupted their removal."""
        for number, path in enumerate(self._segments):
            with path.open("rb", buffering=0) as file:
                raw = file.read(disk.ENTRY_HEADER_SIZE)
            if len(raw) == disk.ENTRY_HEADER_SIZE:
                header = disk.unpack_header(raw, 0)
                is_begin = header.index == self._recorded_begin
                if is_begin and header.pos == disk.start_offset(path.name):
                    del self._segments[:number]
                    return

    def entries(self, first: int) -> Iterator[list[DLedgerEntry]]:
        """Yield the entries from `first` on, in lists of at most 8 MiB.

        Raises ExportError at a record that is damaged; NoEntryError if the log begins after
        `first`; OSError if a file cannot be read.
        """
        if first < self.begin_index:
            raise NoEntryError(
                DLedgerResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN,
                f"there is no entry {first}: {self._folder} begins with entry {self.begin_index}",
            )
        for run in self._runs():
            entries = list(entries_from_disk(run))
            wanted = entries[max(0, first - entries[0].index) :]
            if wanted:
                yield wanted

    def _runs(self) -> Iterator[memoryview]:
        """Yield the stored bytes of checked entries, up to the end of the log."""
        end = None
        for number, path in enumerate(self._segments):
            start, size, at = disk.start_offset(path.name), path.stat().st_size, 0
            if end is not None and start != end:
                raise ExportError(f"{self._folder}: the files from {end} to {start} are missing")
            end = start + size
            with path.open("rb", buffering=0) as file:
                while at + disk.BLANK_SIZE_MIN <= size:
                    view = memoryview(os.pread(file.fileno(), WINDOW_BYTES, at))
                    scan = self._scan(view, start + at)
                    if scan.end:
                        yield view[: scan.end]
                        at += scan.end
                    elif disk.BLANK_HEADER.unpack_from(view) == (disk.BLANK, size - at):
                        break
                    else:
                        later = self._segments[number + 1 :]
                        self._check_end(view, start + at, scan, path, later)
                        return
        self._check_is_whole()

    def _check_is_whole(self) -> None:
        """Raise ExportError if the files end before the last durable entry of the checkpoint."""
        if self.durable_index is not None and self._index <= self.durable_index:
            has = f"end with entry {self._index - 1}" if self._index else "hold no entry"
            raise ExportError(
                f"{self._folder}: entry {self._index} is missing: the files in "
                f"{disk.DATA_FOLDER}/ {has}, but the {CHECKPOINT_FILE} says that the log was "
                f"durable up to entry {self.durable_index}. Restore the files, or export the "
                "folder of another member"
            )

    def _scan(self, view: memoryview, pos: int) -> EntryScan:
        """Check the entries of one term at the beginning of a window, and step past them."""
        term = self._term
        scan = self._scan_term(view, pos, term)
        if not scan.end and scan.damage is not None and scan.damage.reason == "bad_term":
            term = disk.unpack_header(view, 0).term
            if term > self._term:
                scan = self._scan_term(view, pos, term)
        if scan.end:
            self._index, self._term, self._chain_crc = scan.next_index, term, scan.chain_crc
        return scan

    def _scan_term(self, view: memoryview, pos: int, term: int) -> EntryScan:
        return scan_entries(
            view,
            0,
            len(view),
            index=self._index,
            term=term,
            pos=pos,
            chain_crc=self._chain_crc,
            count_max=SCAN_ENTRIES_MAX,
        )

    def _check_end(
        self, view: memoryview, pos: int, scan: EntryScan, path: Path, later: list[Path]
    ) -> None:
        """Raise ExportError unless a sound log may end where this one can be read no further."""
        is_empty = not any(view[: disk.ENTRY_HEADER_SIZE])
        why = "" if is_empty else str(scan.damage)
        is_durable = self.durable_index is not None and self._index <= self.durable_index
        has_more = any(_begins_with_data(one) for one in later)
        is_unknown = self.durable_index is None
        before = self._index - 1 if self._index > self.begin_index else None
        if is_durable or has_more or (is_unknown and self._continues(view, pos)):
            cure = "" if before is None else f"; --last {before} exports what is before it"
            raise ExportError(
                f"{path}: entry {self._index} cannot be read: {why or 'it is missing'}. "
                f"`dledger-node store verify` describes the damage{cure}"
            )
        if why:
            ends = "holds no entry" if before is None else f"ends with entry {before}"
            self.remark = (
                f"the log {ends}; the bytes after it are what a crash or a truncation left"
            )

    def _continues(self, view: memoryview, pos: int) -> bool:
        """Return whether sound entries follow the place where the log can be read no further.

        Terms never decrease in a log, so an entry of an older term is what a truncation by Java
        left. This is asked without a checkpoint, and Java 0.4 keeps none.
        """
        for magic in _MAGIC.finditer(view):
            at = magic.start()
            if at + disk.ENTRY_HEADER_SIZE > len(view):
                break
            header = disk.unpack_header(view, at)
            is_entry = header.pos == pos + at and header.body_size >= 0
            if is_entry and header.index > self._index and header.term >= self._term:
                return True
        return False

    def _first_header(self) -> disk.EntryHeader:
        path = self._segments[0]
        with path.open("rb", buffering=0) as file:
            view = memoryview(file.read(WINDOW_BYTES))
        try:
            return disk.check_entry(view, 0, len(view))
        except DamagedRecordError as error:
            raise ExportError(f"{path}: its first entry cannot be read: {error}") from error


def _segments(folder: Path) -> list[Path]:
    try:
        found = sorted(folder.iterdir(), key=lambda path: disk.start_offset(path.name))
    except ValueError as error:
        raise ExportError(f"{folder}: {error}") from error
    for path in found:
        if not path.is_file():  # opening a named pipe would wait for its other end
            raise ExportError(f"{path} is no regular file, as a segment of the log must be")
    return found


def _begins_with_data(path: Path) -> bool:
    with path.open("rb", buffering=0) as file:
        return any(file.read(disk.ENTRY_HEADER_SIZE))


def _read_checkpoint(folder: Path) -> dict[str, int]:
    """Return the numbers in the checkpoint; none without a checkpoint or if it is damaged."""
    path = folder / CHECKPOINT_FILE
    if not path.is_file():
        return {}
    try:
        values = properties.parse(path.read_bytes())
        return {key: int(values[key]) for key in ("beginIndex", "endIndex") if key in values}
    except (OSError, ValueError):
        return {}
