"""The state that a member keeps: none, or a state machine with its snapshots."""

import asyncio
import contextlib
import logging
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeAlias

from dledger_formats.settings import NO_STATE_MACHINE, NodeSettings
from dledger_node.closing import Closing
from dledger_node.errors import StoreFullError
from dledger_node.raft.messages import InstallSnapshotRequest
from dledger_node.remoting.message_kinds import PeerMessage
from dledger_node.state_machine import machines
from dledger_node.state_machine.apply import Applying, Run, StateCore
from dledger_node.state_machine.install import Installs, SnapshotMessage
from dledger_node.state_machine.machine import NamedMachine, StateMachine
from dledger_node.state_machine.restore import Applied, covered_index, restore, save_is_due
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.snapshots.held_snapshots import HeldSnapshots
from dledger_node.store.snapshots.snapshots import Snapshots

logger = logging.getLogger(__name__)

SAVE_PAUSE_MAX_S: Final = 64.0
"""A snapshot that finds no room is saved again after 1 s, then after twice as long each time, up to
this: each attempt copies the whole state, and writes until the volume is full.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedState:
    """The state restored from a store's folder."""

    snapshots: Snapshots
    applied: Applied
    machine: NamedMachine

    @classmethod
    def of(
        cls,
        settings: NodeSettings,
        folder: Path,
        store: LogStore,
        machine: NamedMachine | None = None,
    ) -> Self | None:
        """Restore the state; blocks. Returns None if there is no state machine, neither `machine`
        nor one named in the settings.

        Raises StoreError, and StoreDamagedError if the state cannot be restored.
        """
        if machine is None:
            if settings.state_machine == NO_STATE_MACHINE:
                return None
            machine = NamedMachine(settings.state_machine, machines.make)
        snapshots = Snapshots(folder, reserved=settings.snapshots_reserved)
        applied = restore(machine.name, snapshots, store, machine.make)
        return cls(snapshots=snapshots, applied=applied, machine=machine)


class NoState:
    """The state of a member without a state machine."""

    applied_index = -1
    is_behind = False
    snapshot_index = -1
    snapshots_installed = 0
    covered_index = sys.maxsize
    awaited = ""
    missing_room_bytes = 0
    no_room_count = 0

    machine = None
    snapshots = None

    def __init__(self) -> None:
        self.reading = contextlib.nullcontext()

    def on_turn(self, committed_index: int) -> None:
        """Apply nothing."""

    def call_when_applied(self, listener: Callable[[int], None]) -> None:
        """Never call the listener: no entry is applied."""

    def lacks(self, push: InstallSnapshotRequest) -> bool:
        """Return False: no push needs a snapshot."""
        return False

    def receive(self, message: SnapshotMessage) -> None:
        """Ignore a message about snapshots."""

    async def save_if_due(self) -> None:
        """Save nothing."""

    async def close(self) -> None:
        """Do nothing: no thread is running."""


class StateKeeper:
    """The state of a member with a state machine."""

    def __init__(
        self,
        opened: OpenedState,
        settings: NodeSettings,
        store: LogStore,
        core: StateCore,
        *,
        send: Callable[[PeerMessage], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`core` is notified whether the state is behind. `send` sends a message to a peer. `fail`
        receives the error that stops this member.
        """
        name, make = opened.machine
        self._threshold = settings.snapshot_threshold
        self._snapshots = opened.snapshots
        self._store = store
        self._applying = Applying(
            name,
            opened.applied,
            opened.snapshots,
            store,
            make=make,
            core=core,
            fail=fail,
        )
        self._installs = Installs(
            name,
            opened.snapshots,
            store,
            make=make,
            self_id=settings.self_id,
            send=send,
            fail=fail,
        )
        self._program_covered: Callable[[], int] = lambda: sys.maxsize
        self._now_s = asyncio.get_running_loop().time
        self._save_again_s, self._save_pause_s = -math.inf, 1.0
        self._unsaved_count = 0
        self.reading = self._applying.reading
        """Must be held while the log is replaced."""

    @property
    def applied_index(self) -> int:
        """Index up to which every entry is applied."""
        return self._applying.index

    @property
    def is_behind(self) -> bool:
        """Whether this member should not lead yet, because its state lacks entries of its log."""
        return self._applying.is_behind

    @property
    def machine(self) -> StateMachine:
        """The current state machine. A batch may be in progress in it."""
        return self._applying.machine

    @property
    def is_applying(self) -> bool:
        """Whether a batch is under way: the machine may be ahead of the applied index."""
        return self._applying.is_under_way

    @property
    def just_applied(self) -> Run | None:
        """The entries that the event loop has applied, while the listeners are called."""
        return self._applying.just_applied

    @property
    def snapshot_index(self) -> int:
        """Index of the last entry that the newest snapshot includes."""
        return self._snapshots.newest_index

    @property
    def snapshots(self) -> HeldSnapshots:
        """The sound and the damaged snapshots."""
        return self._snapshots

    @property
    def snapshots_installed(self) -> int:
        """Number of snapshots that were fetched from other members."""
        return self._installs.installed

    @property
    def covered_index(self) -> int:
        """Index up to which neither the state, even from its oldest snapshot, nor a program on this
        member needs an entry of the log.
        """
        return min(covered_index(self._applying.index, self._snapshots), self._program_covered())

    def keep_for_program(self, covered: Callable[[], int]) -> None:
        """Keep the entries after the index that `covered` returns."""
        self._program_covered = covered

    @property
    def awaited(self) -> str:
        """Human-readable: the snapshot that this member waits for; empty if it waits for none."""
        return self._installs.awaited

    @property
    def missing_room_bytes(self) -> int:
        """Size of the awaited snapshot for which the volume had no room; 0 if there is none."""
        return self._installs.missing_room_bytes

    @property
    def no_room_count(self) -> int:
        """Number of attempts to save or to fetch a snapshot for which the volume had no room."""
        return self._unsaved_count + self._installs.no_room_count

    def on_turn(self, committed_index: int) -> None:
        """Apply the newly committed entries."""
        self._applying.on_turn(committed_index)

    def call_when_applied(self, listener: Callable[[int], None]) -> None:
        """Call `listener` with the applied index after every batch."""
        self._applying.call_when_applied(listener)

    def lacks(self, push: InstallSnapshotRequest) -> bool:
        """Return whether this member must fetch a snapshot before it takes this push."""
        return self._installs.lacks(push)

    def receive(self, message: SnapshotMessage) -> None:
        """Handle a peer's message about snapshots."""
        self._installs.receive(message)

    async def save_if_due(self) -> None:
        """Save a snapshot, if one is due. Raises StoreError.

        Without room for it, the newest snapshot stays, and a later call tries again.
        """
        index = self._applying.index
        if self._now_s() < self._save_again_s or not save_is_due(
            index, self._threshold, self._snapshots, self._store
        ):
            return
        applied = await self._applying.copy()
        try:
            await asyncio.to_thread(
                self._snapshots.save,
                applied.index,
                applied.term,
                applied.machine.dump(),
                self._installs.in_use(),
            )
        except StoreFullError as error:
            self._unsaved_count += 1
            logger.warning("%s; saved again in %.0f s at the earliest", error, self._save_pause_s)
            self._save_again_s = self._now_s() + self._save_pause_s
            self._save_pause_s = min(SAVE_PAUSE_MAX_S, 2 * self._save_pause_s)
        else:
            self._save_pause_s = 1.0

    async def close(self) -> None:
        """Stop, and return once no thread reads the log any longer."""
        closing = Closing()
        await closing.wait(self._installs.close)
        await closing.wait(self._applying.close)
        await closing.wait(lambda: asyncio.to_thread(self._snapshots.close))
        closing.end()


State: TypeAlias = NoState | StateKeeper


def keep(
    opened: OpenedState | None,
    settings: NodeSettings,
    store: LogStore,
    core: StateCore,
    *,
    send: Callable[[PeerMessage], None],
    fail: Callable[[BaseException], None],
) -> State:
    """Return the keeper of the state that was opened. For the arguments see `StateKeeper`."""
    if opened is None:
        return NoState()
    return StateKeeper(opened, settings, store, core, send=send, fail=fail)
