"""From a member's snapshots and its log to the state with which it begins, and what follows.

A snapshot is believed where the log bears it out: the log holds its last entry in its term, or
begins right behind it. One that ends behind the log counts only where nothing else would do: it
came from another member, for a log that was about to be replaced.

What is decided here needs little of a log and of snapshots, so that a simulated disk will do.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.state_machine import machines
from dledger_node.state_machine.machine import StateMachine
from dledger_node.store.snapshots.held_snapshots import HeldSnapshots
from dledger_node.store.snapshots.snapshot_meta import SnapshotMeta

logger = logging.getLogger(__name__)

_WHAT_TO_DO: Final = (
    ". Empty this member's folder, so that it gets both from its leader; or, if this group never "
    "had a {name}, do without it"
)


class Position(Protocol):
    """What is known of an entry without reading it."""

    @property
    def term(self) -> int:
        """In which it was written."""


class Log(Protocol):
    """A member's log, as `LogStore` keeps it."""

    @property
    def begin_index(self) -> int:
        """The first entry that is here."""

    @property
    def end_index(self) -> int:
        """The last one; -1 of an empty log."""

    def position(self, index: int) -> Position:
        """Of an entry that is here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A state, and the last entry that was applied to it; index and term -1 before the first."""

    machine: StateMachine
    index: int = -1
    term: int = -1


def restore(
    name: str,
    snapshots: HeldSnapshots,
    store: Log,
    make: Callable[[str], StateMachine] = machines.make,
) -> Applied:
    """The state of this name from which the log goes on; blocks.

    Snapshots that are of no use are discarded once there is a state without them.
    StoreDamagedError, with nothing changed, when entries are gone that no snapshot includes.
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
            useless[meta.last_included_index] = "the log holds another entry there"
    for index, reason in useless.items():
        logger.warning("the snapshot up to entry %d is discarded: %s", index, reason)
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
    """The state from which to go on, and the last entry that may be applied to it; blocks.

    Where the log has lost what comes next, that is the state of a snapshot. StoreDamagedError as
    `restore`; and when what was applied is not what is committed, which `AsyncFlush` may lead to.
    """
    if applied.index + 1 < store.begin_index:
        applied = restore(name, snapshots, store, make)
    last_index = min(committed_index, store.end_index)
    if applied.index <= last_index and not agrees(applied.index, applied.term, store):
        raise StoreDamagedError(
            f"entry {applied.index} of term {applied.term} was applied to the {name}, "
            "and the log has another in its place, which is committed. The state is made anew",
            Damage.DIVERGED,
            applied.index,
        )
    return applied, last_index


def covered_index(applied_index: int, snapshots: HeldSnapshots) -> int:
    """Up to here the state needs no entry of the log, not even with its oldest snapshot."""
    return min(snapshots.oldest_index, applied_index)


def save_is_due(applied_index: int, threshold: int, snapshots: HeldSnapshots, store: Log) -> bool:
    """Whether a snapshot should be taken: so many entries were applied since the last; or none is
    left from which the log could go on, since one has rotted.
    """
    newest_index = snapshots.newest_index
    if newest_index < store.begin_index - 1 <= applied_index:
        return True
    return applied_index - newest_index >= threshold


def agrees(index: int, term: int, store: Log) -> bool:
    """Whether the log does not say otherwise: its entry there, if it is here, has this term."""
    if not store.begin_index <= index <= store.end_index:
        return True
    return store.position(index).term == term


def _candidates(snapshots: HeldSnapshots, store: Log) -> Iterator[SnapshotMeta | None]:
    """The best first; None stands for the log from its first entry."""
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
    """What was is not known. A member that has, or had, a snapshot had a state, and so its leader
    has one; where there is no trace of any, a state may have been asked for too late.
    """
    had_one = bool(useless or snapshots.newest_first)
    reasons = "; ".join(f"up to {index}: {reason}" for index, reason in sorted(useless.items()))
    return StoreDamagedError(
        f"the log begins with entry {store.begin_index}, and no snapshot of the {name} includes "
        f"those before ({reasons or 'there is none'})"
        + ("" if had_one else _WHAT_TO_DO.format(name=name)),
        Damage.BAD_SNAPSHOT if had_one else Damage.NO_SNAPSHOT,
        store.begin_index,
    )
