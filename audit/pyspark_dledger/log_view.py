"""The log: each committed entry once, from a member that has it intact."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa

from dledger_formats.log import disk
from pyspark_dledger import columns, group, splits
from pyspark_dledger.copies import Copy, RefusedError, opened
from pyspark_dledger.files import Files
from pyspark_dledger.group import Group
from pyspark_dledger.intact import HARMLESS, NoIntactCopyError, Reader, Slice
from pyspark_dledger.layout import Flag
from pyspark_dledger.options import FULL, HEADERS, INDEX, SKIP, Options
from pyspark_dledger.ranges import NOTHING, IndexRange, cut
from pyspark_dledger.segments import Scan, scan
from pyspark_dledger.splits import Piece
from pyspark_dledger.units import scan_units_or_headers

_LOG: Final = logging.getLogger(__name__)

WINDOW_BYTES: Final = 8 << 20
"""What a task reads at a time, and so at most reads beyond its last entry."""

SCANS: Final[Mapping[str, Scan]] = {
    INDEX: scan_units_or_headers,
    HEADERS: partial(scan, sums_bodies=False),
    FULL: scan,
}

AS_WRITTEN: Final = HARMLESS | Flag.UNKNOWN_ENTRY | Flag.BAD_NOOP | Flag.BAD_MEMBERSHIP
"""Flags of entries that checksums prove to be what was written, sensible or not."""


@dataclass(frozen=True, slots=True)
class LogTask:
    """One task: some entries, and the copies to read them from, the preferred one first."""

    pieces: tuple[Piece, ...]
    copies: tuple[Copy, ...]


def schema(options: Options) -> str:
    """Return the columns that a query gets if it names none, in Spark's language."""
    return columns.log_schema(options.level)


class LogView:
    """Plans and reads one query; Spark pickles it in between."""

    def __init__(self, wanted: Mapping[str, str], options: Options) -> None:
        """Take the wanted columns, which map names to Spark types. Raises ValueError."""
        self._options = options
        self._schema = columns.arrow_schema(wanted, options.level)

    def tasks(self, wanted: Sequence[IndexRange], _: frozenset[str] | None) -> list[LogTask]:
        """Ask the members, and divide the log as it is now. Raises RefusedError."""
        found = group.ask(self._options.members, self._options.manifests)
        first = self._options.first_wanted
        if first is not None and self._options.on_removed != SKIP:
            check_front(found, first)
        return log_tasks(found, wanted, self._options.task_bytes, self._options.level)

    def read(self, task: LogTask) -> Iterator[pa.RecordBatch]:
        """Yield the entries of a task. Raises NoIntactCopyError, RefusedError."""
        scan = SCANS[self._options.level]
        with Reader(WINDOW_BYTES, harmless=AS_WRITTEN, open_copy=open_copy, scan=scan) as reader:
            for piece in task.pieces:
                for each in self._slices(reader, task.copies, piece):
                    run = each.entries.part(each.start, each.end)
                    yield columns.batch(run, each.member, each.segment, self._schema)

    def _slices(self, reader: Reader, copies: Sequence[Copy], piece: Piece) -> Iterator[Slice]:
        """Yield the entries of a piece, without those that retention removes meanwhile."""
        index = piece.first
        while index <= piece.last:
            try:
                for each in reader.read(copies, index, piece.last):
                    yield each
                    index = each.first_index + len(each)
            except NoIntactCopyError:
                first = self._removed_before(copies)
                if first <= index:
                    raise
                _LOG.warning(
                    "leaving out the entries %d to %d: removed meanwhile", index, first - 1
                )
                index = first

    def _removed_before(self, copies: Sequence[Copy]) -> int:
        """Return before which index all of these members have removed their entries since the query
        was planned; 0 if one of them does not say so. Raises RefusedError if the query forbids it.
        """
        try:
            found = group.ask(self._options.members)
        except RefusedError:
            return 0
        answered = {copy.member for copy in found.copies}
        if any(copy.member not in answered for copy in copies) or found.committed_index < 0:
            return 0
        wanted = self._options.first_wanted
        if wanted is not None and self._options.on_removed != SKIP:
            check_front(found, wanted)
        return found.first_index


def check_front(found: Group, first: int) -> None:
    """Raise RefusedError if entries from `first` on were removed."""
    if found.committed_index >= 0 and first < found.first_index:
        raise RefusedError(
            f"the log of the group begins with entry {found.first_index}: entries from {first} on "
            f"were asked for, and retention has removed them from all members that answer; start "
            f"with startingIndex={found.first_index}, or take onRemoved={SKIP} to leave them out"
        )


def log_tasks(
    found: Group, wanted: Sequence[IndexRange], task_bytes: int, level: str = FULL
) -> list[LogTask]:
    """Divide the wanted entries of the log. Neighboring tasks prefer different members."""
    held = IndexRange(first=found.first_index, last=found.committed_index)
    parts = cut(wanted, held) if held.first <= held.last else (NOTHING,)
    if parts == (NOTHING,):
        return []
    copies = found.copies
    widest = max(copies, key=lambda copy: copy.committed_index - copy.first_index)
    if level == INDEX:
        divided = splits.equal_tasks(parts, max(1, task_bytes // disk.INDEX_UNIT_SIZE))
    else:
        with open_copy(widest) as files:
            divided = splits.tasks(widest, files, parts, task_bytes)
    return [
        LogTask(tuple(pieces), _copies(copies, number, pieces))
        for number, pieces in enumerate(divided)
    ]


def open_copy(copy: Copy) -> AbstractContextManager[Files]:
    """Open a copy. A member that hangs delays a task by 20 seconds; then others are read."""
    return opened(copy.place, timeout_seconds=10, attempts_max=2)


def _copies(copies: Sequence[Copy], number: int, pieces: Sequence[Piece]) -> tuple[Copy, ...]:
    """Return the copies for a task: another follower first each time, and the leader last."""
    followers = [copy for copy in copies if not copy.leads]
    turned = number % max(1, len(followers))
    order = [*followers[turned:], *followers[:turned], *(copy for copy in copies if copy.leads)]
    hull = IndexRange(first=pieces[0].first, last=pieces[-1].last)
    return tuple(copy.part(hull) for copy in order)
