"""The removals from the front of an open log: recorded before they happen, reported to auditors.

A removal is recorded durably before the new beginning is. So after a crash, the record may name
entries that the log still has; it counts only for entries before the log's first one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dledger_formats.http.retention import Removal, RemovalRule
from dledger_node.errors import StoreFullError
from dledger_node.store.small_files import removals_file
from dledger_node.store.small_files.checkpoint import Checkpoint
from dledger_node.store.small_files.removals_file import REMOVALS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """Why entries are removed, and what is known about them."""

    rule: RemovalRule
    removed_at_ms: int = -1
    is_forced: bool = False
    committed_index: int = -1
    covered_index: int | None = None
    held_by_all_index: int = -1


UNRECORDED = Grounds(rule=RemovalRule.UNRECORDED)


class Removals:
    """The removals of one log; callers serialize changes, and any thread may read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Covers the entries from 0 on without a gap. The tuple is replaced, never changed.
        self._all: tuple[Removal, ...] = ()

    def restore(self, checkpoint: Checkpoint | None, begin_index: int) -> None:
        """Read the file of a log that begins with this entry; blocks. Raises StoreError.

        A checkpoint with this beginning shows that the front was removed on purpose. Without it and
        without a record, the front may be lost, and nothing is recorded for it. A folder without
        this file was written by an earlier release or by Java, which may have removed anything.
        """
        found = removals_file.load(self._folder)
        kept = before(found or (), begin_index)
        is_meant = checkpoint is not None and checkpoint.begin_index == begin_index
        if _end(kept) < begin_index and (found is None or is_meant):
            kept = extended(kept, begin_index, UNRECORDED)
        self._all = kept
        if kept != found:
            self._save_if_room()

    def before(self, begin_index: int) -> tuple[Removal, ...]:
        """Return the removals of a log that begins with this entry."""
        return before(self._all, begin_index)

    def record(self, begin_index: int, grounds: Grounds) -> None:
        """Record durably why the log begins with an entry, before it does; blocks.

        A full volume must not keep a removal from making room: the record is then only in memory
        until the next one. Raises StoreError.
        """
        self._all = extended(before(self._all, begin_index), begin_index, grounds)
        self._save_if_room()

    def _save_if_room(self) -> None:
        try:
            removals_file.save(self._folder, self._all)
        except StoreFullError:
            return


def before(removals: Sequence[Removal], begin_index: int) -> tuple[Removal, ...]:
    """Return the removals that lie entirely before an entry."""
    return tuple(removal for removal in removals if removal.last_index < begin_index)


def extended(
    removals: Sequence[Removal], begin_index: int, grounds: Grounds
) -> tuple[Removal, ...]:
    """Return the removals extended up to an entry; if too many, the oldest two are merged."""
    first_index = _end(removals)
    if first_index >= begin_index:
        return tuple(removals)
    added = Removal(
        first_index=first_index,
        last_index=begin_index - 1,
        rule=grounds.rule,
        removed_at_ms=grounds.removed_at_ms,
        is_forced=grounds.is_forced,
        committed_index=grounds.committed_index,
        covered_index=grounds.covered_index,
        held_by_all_index=grounds.held_by_all_index,
    )
    longer = (*removals, added)
    if len(longer) <= REMOVALS_MAX:
        return longer
    merged = Removal(
        first_index=0,
        last_index=longer[1].last_index,
        rule=RemovalRule.EARLIER,
        removed_at_ms=longer[1].removed_at_ms,
    )
    return (merged, *longer[2:])


def _end(removals: Sequence[Removal]) -> int:
    """Return the first entry after the removals."""
    return removals[-1].last_index + 1 if removals else 0
