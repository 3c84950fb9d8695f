"""Recover a log: find its end, and make its files hold exactly the log.

1. `examine` reads and changes nothing. Entries up to the checkpoint's durable index were flushed,
   so a crash cannot have torn them: it reads only the last `MARGIN_BYTES` of them. The others are
   verified when they are read. It verifies every record after the durable index.
2. `judge` decides whether the log ends in a torn tail or in damage. After the durable index, a
   crash may have torn entries that were not flushed, and recovery cuts them. If the records end at
   or before the durable index, the log is damaged: `judge` raises StoreDamagedError, and the files
   stay unchanged.
3. `repair` cuts the tail, rewrites index units that disagree with the data, and syncs the files, so
   that every entry that is served is durable.
"""

import contextlib
from dataclasses import dataclass
from typing import Final

from dledger_formats.log import disk
from dledger_formats.log.chain_link import chain_crc_before
from dledger_formats.log.disk import ENTRY_HEADER_SIZE, INDEX_UNIT_SIZE, DamagedRecordError
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.store.log.entry_walk import Cursor, EntryWalk, before_first, first_entry
from dledger_node.store.log.files import Beginning, LogFiles, place
from dledger_node.store.segments.segment import Segment
from dledger_node.store.small_files.checkpoint import Checkpoint

MARGIN_BYTES: Final = 4 << 20
"""Durable bytes that are verified at every start: they show whether the checkpoint belongs to this
log, and whether the disk kept its last flush.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """The result of opening a log: what was found and repaired."""

    begin_index: int
    end_index: int
    verified_entries: int
    cut_bytes: int
    """Bytes in use after the last sound entry, now zeroed; 0 after an orderly stop."""
    cut_reason: str
    """Why the first record after the end was rejected; empty if there was none."""
    rebuilt_units: int
    """Index units that were missing or wrong."""
    seconds: float

    def __str__(self) -> str:
        """Describe the log and what was repaired."""
        parts = ["it has no entry"]
        if self.end_index >= 0:
            entries = f"entries {self.begin_index} to {self.end_index}"
            parts = [f"it has {entries}, of which {self.verified_entries} were verified"]
        if self.cut_bytes:
            parts.append(f"{self.cut_bytes} bytes after them were cleared: {self.cut_reason}")
        if self.rebuilt_units:
            parts.append(f"{self.rebuilt_units} index units were rebuilt")
        return f"{'; '.join(parts)} ({self.seconds:.3f} s)"


@dataclass(slots=True)
class RecoveryProgress:
    """The progress of an opening's verification. One thread sets it; others may read it."""

    size_bytes: int = 0
    """Bytes of the log's files that the last opening verifies, the unused end included."""
    verified_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """The state of a log before its repair."""

    start: Cursor
    """Where verification began."""
    end: Cursor
    begin: Beginning
    stop_reason: str
    """Why the record after the end was rejected; empty if there is none."""
    bad_units: int
    term_runs: list[tuple[int, int]]


def examine(
    files: LogFiles,
    checkpoint: Checkpoint | None,
    progress: RecoveryProgress | None = None,
    *,
    verify_all: bool = False,
    margin_bytes: int = MARGIN_BYTES,
) -> Examined:
    """Find the end of the log. Raises StoreDamagedError if durable entries are missing.

    `verify_all` reads every entry; the caller sets it after a read has found damage.
    """
    beginning = before_first(files, checkpoint)
    start, runs = beginning, list[tuple[int, int]]()
    if not verify_all:
        # If the index or a sealed segment is wrong, read everything.
        with contextlib.suppress(StoreDamagedError, IndexError):
            later = _checkpointed_start(files, checkpoint, beginning, margin_bytes)
            begin = Beginning(beginning.index, beginning.chain_crc)
            runs = list(files.term_runs(begin, later.index - 1))
            start = later
    files.data.forget_cache(start.pos)
    walk = EntryWalk(files, start, runs)
    progress = progress or RecoveryProgress()
    progress.verified_bytes, progress.size_bytes = 0, files.data.end - start.pos
    bad_units = 0
    for index, units in walk:
        stored = files.units(index, walk.end.index - 1)
        if stored != units:
            bad_units += _differing_units(stored, units)
        progress.verified_bytes = walk.end.pos - start.pos
    judge(files, checkpoint, walk)
    progress.verified_bytes = progress.size_bytes
    return Examined(
        start=start,
        end=walk.end,
        begin=_proved(files, beginning, walk.end.index),
        stop_reason=walk.stop_reason,
        bad_units=bad_units,
        term_runs=walk.term_runs,
    )


def _proved(files: LogFiles, beginning: Cursor, end_index: int) -> Beginning:
    """Return where the log begins, with the chain CRC that proves its first header from now on.

    If nothing is known of the entry before, because an earlier version or Java wrote the
    checkpoint, the header is trusted as it is now.
    """
    chain_crc = beginning.chain_crc
    if chain_crc is None and beginning.index < end_index:
        file = files.data.file_at(beginning.pos)
        raw = file.read(beginning.pos - file.start, ENTRY_HEADER_SIZE)
        chain_crc = chain_crc_before(disk.unpack_header(raw, 0))
    return Beginning(beginning.index, chain_crc if beginning.index else None)


def repair(files: LogFiles, found: Examined) -> int:
    """Make the files hold the examined log and nothing else, durably; return the bytes cut.

    Raises StoreFullError if a file has holes or index files are missing, and the volume is full.
    """
    for file in (*files.data.files, *files.index.files):
        file.allocate()
    if found.bad_units:
        _write_units(files, found)
    files.index.truncate(found.end.index * INDEX_UNIT_SIZE)
    cut_bytes = files.data.truncate(found.end.pos)
    files.data.sync(files.data.files_between(found.start.pos, files.data.end))
    files.index.sync(tuple(files.index.files))
    return cut_bytes


def finish_replacing(files: LogFiles, checkpoint: Checkpoint | None) -> None:
    """Remove a log whose replacement by a leader's log was interrupted before its first entry.

    The checkpoint shows this: it names a beginning, and no durable entry from there on.
    """
    if checkpoint is None or checkpoint.begin_index is None or not files.data.files:
        return
    first = files.data.files[0]
    if checkpoint.end_index < checkpoint.begin_index and first.start > 0:
        try:
            first_entry(first)
        except StoreDamagedError:
            files.data.clear()
            files.index.clear()


def forget_removed(files: LogFiles, checkpoint: Checkpoint | None) -> tuple[Segment, ...]:
    """Forget and return the segments before the checkpoint's beginning.

    A crash interrupted their removal. They no longer belong to the log, so damage in them must not
    keep its member out. Nothing is forgotten unless the place of the first entry is certain, by its
    own header or by the index units on both sides of the border.
    """
    if checkpoint is None or checkpoint.begin_index is None:
        return ()
    index = checkpoint.begin_index
    if not 0 < index <= checkpoint.end_index or not _border_is_known(files, index):
        return ()
    data = files.data.take_before(files.pos(index))
    return data + files.index.take_before(index * INDEX_UNIT_SIZE)


def _border_is_known(files: LogFiles, index: int) -> bool:
    """Return whether the index and one more source show that an entry begins a data segment."""
    if not files.begins_segment(index):
        return False
    try:
        files.header(index)
    except StoreDamagedError:
        pos = files.pos(index)
        try:
            before = files.unit(index - 1)
        except IndexError:
            return False
        in_segment_before = pos - files.data.file_size <= before.pos < pos
        return before.index == index - 1 and in_segment_before and before.pos + before.size <= pos
    return True


def _checkpointed_start(
    files: LogFiles, checkpoint: Checkpoint | None, beginning: Cursor, margin_bytes: int
) -> Cursor:
    """Return a place `margin_bytes` before the checkpoint's durable end.

    Raises StoreDamagedError or IndexError if the index does not match the data before it.
    """
    if checkpoint is None or checkpoint.end_index < beginning.index:
        return beginning
    last_index = checkpoint.end_index
    files.header(beginning.index)  # raises if the first index files are missing
    files.header(last_index)
    for file in files.data.files_between(files.data.start + 1, files.end_pos(last_index)):
        if file.start != files.data.start:
            _check_border(files, file)
    first_index = files.first_from(
        files.end_pos(last_index) - margin_bytes, beginning.index, last_index
    )
    if first_index == beginning.index:
        return beginning
    before = files.header(first_index - 1)
    files.header(first_index)
    pos, end_pos = files.pos(first_index), files.end_pos(first_index - 1)
    if pos not in (end_pos, files.data.file_at(pos).start):
        raise StoreDamagedError(
            f"{place(files.data, pos)}: entry {first_index} does not follow the previous entry",
            Damage.WRONG_INDEX,
            first_index,
        )
    return Cursor(pos=pos, index=first_index, term=before.term, chain_crc=before.chain_crc)


def _check_border(files: LogFiles, file: Segment) -> None:
    """Raise StoreDamagedError unless a segment begins with the entry that the index names."""
    first = disk.unpack_header(file.read(0, ENTRY_HEADER_SIZE), 0)
    files.header(first.index)
    files.header(first.index - 1)
    if files.pos(first.index) != file.start:
        raise StoreDamagedError(
            f"{file.path} does not begin with entry {first.index}", Damage.WRONG_INDEX
        )


def judge(files: LogFiles, checkpoint: Checkpoint | None, walk: EntryWalk) -> None:
    """Raise StoreDamagedError if a log ends where a crash cannot have torn it."""
    index = walk.end.index
    if checkpoint is not None:
        is_torn = index > checkpoint.end_index
        proof = f"the checkpoint says that entries up to {checkpoint.end_index} were durable"
    else:
        is_torn = not _more_is_sound(files, walk)
        proof = "later entries are sound, and there is no checkpoint to tell where the log ends"
    if not is_torn:
        raise StoreDamagedError(
            f"{place(files.data, walk.stop_pos)}: entry {index} is missing or damaged "
            f"({walk.stop_reason or 'no data'}), and {proof}. Nothing was changed. The other "
            "members have the entry",
            Damage.BAD_ENTRY if walk.stop_reason else Damage.MISSING_ENTRIES,
            index,
        )


def _more_is_sound(files: LogFiles, walk: EntryWalk) -> bool:
    """Return whether the log continues after the place where the walk stopped.

    As in Java, more than one later segment counts. Here a sound entry after the next one counts
    too, unless its term is lower than the last term: terms never decrease in a log, so such an
    entry is left over from a truncation by Java, which does not zero what it cuts.
    """
    data = files.data
    if data.files and data.files[-1].start > walk.stop_pos + data.file_size:
        return True
    try:
        header = files.header(walk.end.index + 1)
        file = data.file_at(files.pos(walk.end.index + 1))
        raw = file.read(files.pos(walk.end.index + 1) - file.start, header.size)
        disk.check_entry(raw, 0, len(raw))
    except (StoreDamagedError, DamagedRecordError, IndexError):
        return False
    return header.term >= walk.end.term


def _write_units(files: LogFiles, found: Examined) -> None:
    if files.index.start > found.begin.first_index * INDEX_UNIT_SIZE:
        files.index.truncate(0)  # its first files are missing, so all entries were verified
    files.index.reserve(found.start.index * INDEX_UNIT_SIZE, found.end.index * INDEX_UNIT_SIZE)
    for index, units in EntryWalk(files, found.start, []):
        files.index.write(index * INDEX_UNIT_SIZE, units)


def _differing_units(stored: bytes, expected: bytes) -> int:
    return sum(
        stored[at : at + INDEX_UNIT_SIZE] != expected[at : at + INDEX_UNIT_SIZE]
        for at in range(0, len(expected), INDEX_UNIT_SIZE)
    )


def report(found: Examined, cut_bytes: int, seconds: float) -> RecoveryReport:
    """Describe what `examine` found and `repair` did."""
    return RecoveryReport(
        begin_index=found.begin.first_index,
        end_index=found.end.index - 1,
        verified_entries=found.end.index - found.start.index,
        cut_bytes=cut_bytes,
        cut_reason=found.stop_reason,
        rebuilt_units=found.bad_units,
        seconds=seconds,
    )
