"""The log: each committed entry once, from a member that has it intact."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa

from dledger_formats.log import disk
from pyspark_dledger import columns, group, splits
from pyspark_dledger.bearer import Bearer
from pyspark_dledger.copies import Copy, RefusedError, opened
from pyspark_dledger.files import Files
from pyspark_dledger.group import Group
from pyspark_dledger.intact import (
    HARMLESS,
    NoIntactCopyError,
    Reader,
    Slice,
    UnauthorizedCopyError,
)
from pyspark_dledger.layout import Flag
from pyspark_dledger.options import FULL, HEADERS, INDEX, SKIP, Options
from pyspark_dledger.pairs import check_decoder, pairs_of
from pyspark_dledger.ranges import INDEX_MAX, NOTHING, IndexRange, cut
from pyspark_dledger.segments import Scan, scan
from pyspark_dledger.splits import Piece
from pyspark_dledger.units import scan_units_or_headers

_LOG: Final = logging.getLogger(__name__)

COMMIT_SECONDS: Final = 30.0
ASK_SECONDS: Final = 0.25
"""How long a task waits without a further entry, and how often it asks, while members do not know
that its entries are committed, or none answers: after the leader died, the others know it once one
of them leads, and all of them may restart.
"""

WINDOW_BYTES: Final = 8 << 20
"""Bytes that a task reads at a time, and so at most reads beyond its last entry."""

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
    first_wanted: int | None = None
    """If retention removed entries from this index on meanwhile, that is an error."""


def schema(options: Options) -> str:
    """Return the Spark schema of a query that names no columns."""
    return columns.default_schema(options)


class LogView:
    """Plans and reads one query; Spark pickles it in between."""

    def __init__(self, wanted: Mapping[str, str], options: Options) -> None:
        """Take the wanted columns, which map names to Spark types. Raises ValueError."""
        self._options = options
        self._schema = columns.arrow_schema(wanted, options)
        check_decoder(options)

    def tasks(self, wanted: Sequence[IndexRange], _: frozenset[str] | None) -> list[LogTask]:
        """Ask the members, and divide the log as it is now. Raises RefusedError."""
        found = group.ask(self._options.members, self._options.manifests)
        first = self._options.first_wanted
        asked = self._options
        if first is not None:
            check_front(found, first, asked.on_removed)
            warn_of_removed(found, first)
        tasks = log_tasks(found, wanted, asked.task_bytes, asked.level, asked.bearer)
        return [replace(task, first_wanted=first) for task in tasks]

    def read(self, task: LogTask) -> Iterator[pa.RecordBatch]:
        """Yield the entries of a task. Raises NoIntactCopyError, RefusedError."""
        scan = SCANS[self._options.level]
        decode = pairs_of(self._options)
        open_ = partial(open_copy, bearer=self._options.bearer)
        with Reader(WINDOW_BYTES, harmless=AS_WRITTEN, open_copy=open_, scan=scan) as reader:
            for piece in task.pieces:
                for each in self._slices(reader, task, piece):
                    run = each.entries.part(each.start, each.end)
                    yield columns.batch(run, each.member, each.segment, self._schema, decode)

    def _slices(self, reader: Reader, task: LogTask, piece: Piece) -> Iterator[Slice]:
        """Yield the entries of a piece, without those that retention removes meanwhile."""
        index, copies = piece.first, task.copies
        deadline = time.monotonic() + COMMIT_SECONDS
        while index <= piece.last:
            try:
                for each in reader.read(copies, index, piece.last):
                    yield each
                    index = each.first_index + len(each)
                    deadline = time.monotonic() + COMMIT_SECONDS
            except NoIntactCopyError as error:
                if isinstance(error, UnauthorizedCopyError) and error.is_from_all:
                    raise  # waiting does not help
                found = self._ask_again()
                first = _removed_before(found, copies)
                if first > index:
                    if task.first_wanted is not None:
                        check_front(found, task.first_wanted, self._options.on_removed)
                    _LOG.warning(
                        "leaving out the entries %d to %d: removed meanwhile", index, first - 1
                    )
                    index = first
                    continue
                newer = _renewed(copies, found, piece)
                may_learn = any(copy.committed_index < piece.last for copy in found.copies)
                may_give = may_learn or _may_be_back(found, error)
                if (newer == copies and not may_give) or time.monotonic() > deadline:
                    raise
                if newer == copies:
                    time.sleep(ASK_SECONDS)
                copies = newer

    def _ask_again(self) -> Group:
        try:
            return group.ask(self._options.members)
        except RefusedError:
            return Group(copies=())


def _may_be_back(found: Group, error: NoIntactCopyError) -> bool:
    """Return whether a copy that could not be read may be readable again: its member answers, or
    none does, as if all of them were restarting, or this machine had lost its network.
    """
    present = {copy.member for copy in found.copies}
    return bool(error.silent) and (not present or not present.isdisjoint(error.silent))


def _removed_before(found: Group, copies: Sequence[Copy]) -> int:
    """Return the index before which the members of all copies have removed their entries by now.

    Return 0 if one of them does not report its entries.
    """
    reporting = {copy.member for copy in found.copies}.difference(found.unsure)
    if any(copy.member not in reporting for copy in copies) or found.committed_index < 0:
        return 0
    return found.first_index


def _renewed(copies: tuple[Copy, ...], found: Group, piece: Piece) -> tuple[Copy, ...]:
    """Return the copies, newer where their members know more entries to be committed."""
    present = {copy.member: copy for copy in found.copies}
    hull = IndexRange(first=piece.first, last=piece.last)
    return tuple(
        present[copy.member].part(hull)
        if copy.member in present
        and copy.committed_index < min(piece.last, present[copy.member].committed_index)
        else copy
        for copy in copies
    )


def unknown_front(found: Group, first: int) -> str:
    """Return why it is not known whether entries from `first` on were removed; empty if it is."""
    if not _is_cut(found, first) or not found.unreported:
        return ""
    return (
        f"the members that report their entries begin with entry {found.first_index}, and others "
        f"may have those from {first} on ({'; '.join(found.unreported)}); start again once these "
        "report theirs, too, or without their names if they are lost, or leave the entries out "
        f"with startingIndex={found.first_index} (a stream: and a new checkpoint)"
    )


def check_front(found: Group, first: int, on_removed: str) -> None:
    """Raise RefusedError if entries from `first` on were removed and may not be left out.

    The error is also raised if a member that does not report its entries may still have them.
    """
    if unknown := unknown_front(found, first):
        raise RefusedError(unknown)
    if _is_cut(found, first) and on_removed != SKIP:
        raise RefusedError(
            f"the log of the group begins with entry {found.first_index}: entries from {first} on "
            f"were asked for, and retention has removed them from all members; start "
            f"with startingIndex={found.first_index}, or take onRemoved={SKIP} to leave them out"
        )


def warn_of_removed(found: Group, first: int, last: int = INDEX_MAX) -> None:
    """Log which of the entries `first` to `last` are left out, since they were removed."""
    if _is_cut(found, first):
        _LOG.warning(
            "leaving out the entries %d to %d: removed before they were read",
            first, min(last, found.first_index - 1),
        )  # fmt: skip


def _is_cut(found: Group, first: int) -> bool:
    return found.committed_index >= 0 and first < found.first_index


def log_tasks(
    found: Group,
    wanted: Sequence[IndexRange],
    task_bytes: int,
    level: str = FULL,
    bearer: Bearer | None = None,
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
        with open_copy(widest, bearer) as files:
            divided = splits.tasks(widest, files, parts, task_bytes)
    return [
        LogTask(tuple(pieces), _copies(copies, number, pieces))
        for number, pieces in enumerate(divided)
    ]


def open_copy(copy: Copy, bearer: Bearer | None = None) -> AbstractContextManager[Files]:
    """Open a copy. A member that hangs delays a task by 20 seconds; then others are read."""
    return opened(copy.place, timeout_seconds=10, attempts_max=2, bearer=bearer)


def _copies(copies: Sequence[Copy], number: int, pieces: Sequence[Piece]) -> tuple[Copy, ...]:
    """Return the copies for a task: another follower first each time, and the leader last."""
    followers = [copy for copy in copies if not copy.leads]
    turned = number % max(1, len(followers))
    order = [*followers[turned:], *followers[:turned], *(copy for copy in copies if copy.leads)]
    hull = IndexRange(first=pieces[0].first, last=pieces[-1].last)
    return tuple(copy.part(hull) for copy in order)
