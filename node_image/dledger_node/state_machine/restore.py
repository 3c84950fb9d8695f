"""Restore a member's state from snapshots and log, and decide which entries to apply next.

A snapshot is used if the log agrees with it: the log holds the snapshot's last entry in the same
term, or begins right after it. A snapshot that ends after the end of the log is used only if there
is no other way to restore the state: it came from another member, for a log that was about to be
replaced.

These rules need only a few facts about the log and the snapshots, so the simulator runs them too.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from dledger_formats.log.snapshot_meta import SnapshotMeta
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.state_machine import machines
from dledger_node.state_machine.machine import StateMachine
from dledger_node.store.snapshots.held_snapshots import HeldSnapshots

logger = logging.getLogger(__name__)

_WHAT_TO_DO: Final = (
    ". Empty this member's folder, so that it gets snapshot and log from its leader; or, if this "
    "group never had a {name}, unset the state machine"
)


class Position(Protocol):
    """The metadata of an entry, known without reading it."""

    @property
    def term(self) -> int:
        """Term of the entry."""


class Log(Protocol):
    """The facts about a member's log that these rules need; `LogStore` implements it."""

    @property
    def begin_index(self) -> int:
        """Index of the first entry in the log."""

    @property
    def end_index(self) -> int:
        """Index of the last entry; -1 if the log is empty."""

    def position(self, index: int) -> Position:
        """Return the metadata of an entry in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A state, with index and term of the last entry applied to it; -1 before the first."""

    machine: StateMachine
    index: int = -1
    term: int = -1


def restore(
    name: str,
    snapshots: HeldSnapshots,
    store: Log,
    make: Callable[[str], StateMachine] = machines.make,
) -> Applied:
    """Return the state of this name that the log continues; blocks.

    Discards unusable snapshots once the state is restored without them. Raises StoreDamagedError,
    and changes nothing, if removed entries are in no snapshot.
    """
    useless = dict(snapshots.damaged)
    applied: Applied | None = None
    for meta in _candidates(snapshots, store):
        machine = make(name)
        if meta is None:
            applied = Applied(machine=machine)
            break
        try:
            snapshots.read(meta, machine.load)
        except StoreDamagedError as error:
            useless[meta.last_included_index] = str(error)
            continue
        index, term = meta.last_included_index, meta.last_included_term
        applied = Applied(machine=machine, index=index, term=term)
        break
    if applied is None:
        raise _nothing_is_left(name, snapshots, useless, store)
    for meta in snapshots.newest_first:
        if not agrees(meta.last_included_index, meta.last_included_term, store):
            useless[meta.last_included_index] = "the log has another entry there"
    for index, reason in useless.items():
        logger.warning("discarding the snapshot up to entry %d: %s", index, reason)
        snapshots.discard(index)
    return applied


def next_to_apply(
    name: str,
    applied: Applied,
    committed_index: int,
    snapshots: HeldSnapshots,
    store: Log,
    make: Callable[[str], StateMachine] = machines.make,
) -> tuple[Applied, int]:
    """Return the state to continue with, and the index of the last entry to apply to it; blocks.

    If the log lacks the next entry, this is the state of a snapshot. Raises StoreDamagedError as
    `restore` does, and if the last applied entry is not the committed one: with `AsyncFlush` that
    is possible.
    """
    if applied.index + 1 < store.begin_index:
        applied = restore(name, snapshots, store, make)
    last_index = min(committed_index, store.end_index)
    if applied.index <= last_index and not agrees(applied.index, applied.term, store):
        raise StoreDamagedError(
            f"entry {applied.index} of term {applied.term} was applied to the {name}, but the "
            "committed entry there is of another term. The state is restored from scratch",
            Damage.DIVERGED,
            applied.index,
        )
    return applied, last_index


def covered_index(applied_index: int, snapshots: HeldSnapshots) -> int:
    """Return the index up to which the state needs no entry of the log, even if it has to be
    restored from the oldest snapshot.
    """
    return min(snapshots.oldest_index, applied_index)


def save_is_due(applied_index: int, threshold: int, snapshots: HeldSnapshots, store: Log) -> bool:
    """Return whether a snapshot should be taken: `threshold` entries were applied since the last,
    or the log continues none of the snapshots, because one was found damaged.
    """
    newest_index = snapshots.newest_index
    if newest_index < store.begin_index - 1 <= applied_index:
        return True
    return applied_index - newest_index >= threshold


def agrees(index: int, term: int, store: Log) -> bool:
    """Return whether the log's entry at `index`, if the log holds it, has this term."""
    if not store.begin_index <= index <= store.end_index:
        return True
    return store.position(index).term == term


def _candidates(snapshots: HeldSnapshots, store: Log) -> Iterator[SnapshotMeta | None]:
    """Yield the snapshots to try, the best first; None stands for the log from its first entry."""
    reaching = [
        meta
        for meta in snapshots.newest_first
        if meta.last_included_index >= store.begin_index - 1
        and agrees(meta.last_included_index, meta.last_included_term, store)
    ]
    yield from (meta for meta in reaching if meta.last_included_index <= store.end_index)
    if store.begin_index == 0:
        yield None
    yield from (meta for meta in reaching if meta.last_included_index > store.end_index)


def _nothing_is_left(
    name: str, snapshots: HeldSnapshots, useless: dict[int, str], store: Log
) -> StoreDamagedError:
    """Return the error for a state that cannot be restored.

    A member that has, or had, a snapshot had a state, so its leader has one too. Without a trace of
    a snapshot, the state machine may have been configured after entries had been removed.
    """
    had_snapshot = bool(useless or snapshots.newest_first)
    reasons = "; ".join(f"up to {index}: {reason}" for index, reason in sorted(useless.items()))
    return StoreDamagedError(
        f"the log begins with entry {store.begin_index}, and no snapshot of the {name} includes "
        f"the entries before it ({reasons or 'no snapshot exists'})"
        + ("" if had_snapshot else _WHAT_TO_DO.format(name=name)),
        Damage.BAD_SNAPSHOT if had_snapshot else Damage.NO_SNAPSHOT,
        store.begin_index,
    )
