"""From a member's snapshots and its log to the state with which it begins.

A snapshot is believed where the log bears it out: the log holds its last entry in its term, or
begins right behind it. One that ends behind the log counts only where nothing else would do: it
came from another member, for a log that was about to be replaced.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.state_machine import machines
from dledger_node.state_machine.machine import StateMachine
from dledger_node.store.mmap_store import MmapStore
from dledger_node.store.snapshot_meta import SnapshotMeta
from dledger_node.store.snapshots import Snapshots

logger = logging.getLogger(__name__)

_WHAT_TO_DO: Final = (
    ". Empty this member's folder, so that it gets both from its leader; or, if this group never "
    "had a {name}, do without it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A state, and the last entry that was applied to it; index and term -1 before the first."""

    machine: StateMachine
    index: int = -1
    term: int = -1


def restore(name: str, snapshots: Snapshots, store: MmapStore) -> Applied:
    """The state of this name from which the log goes on; blocks.

    Snapshots that are of no use are discarded once there is a state without them.
    StoreDamagedError, with nothing changed, when entries are gone that no snapshot includes.
    """
    useless = dict(snapshots.damaged)
    applied: Applied | None = None
    for meta in _candidates(snapshots, store):
        if meta is None:
            applied = Applied(machine=machines.make(name))
            break
        machine = machines.make(name)
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


def agrees(index: int, term: int, store: MmapStore) -> bool:
    """Whether the log does not say otherwise: its entry there, if it is here, has this term."""
    if not store.begin_index <= index <= store.end_index:
        return True
    return store.position(index).term == term


def _candidates(snapshots: Snapshots, store: MmapStore) -> Iterator[SnapshotMeta | None]:
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
    name: str, snapshots: Snapshots, useless: dict[int, str], store: MmapStore
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
