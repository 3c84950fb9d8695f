"""What a server keeps of a state: nothing, or a machine, its snapshots and those who read it."""

import asyncio
import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeAlias

from dledger_formats.protocol.register import ReadRegisterRequest, ReadRegisterResponse
from dledger_formats.protocol.requests import DLedgerResponseCode
from dledger_formats.settings import NO_STATE_MACHINE, NodeSettings
from dledger_node.raft.core import Raft
from dledger_node.raft.messages import InstallSnapshotRequest
from dledger_node.remoting.native import PeerMessage
from dledger_node.remoting.service import Reply
from dledger_node.state_machine.apply import Applying
from dledger_node.state_machine.install import Installs, SnapshotMessage
from dledger_node.state_machine.register import Register
from dledger_node.state_machine.restore import Applied, covered_index, restore, save_is_due
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.snapshots.snapshots import Snapshots

Prove = Callable[[Callable[[DLedgerResponseCode], None]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedState:
    """What a store's folder holds of a state."""

    snapshots: Snapshots
    applied: Applied

    @classmethod
    def of(cls, settings: NodeSettings, folder: Path, store: LogStore) -> Self | None:
        """Restore it; blocks. None without a state machine. StoreError, StoreDamagedError."""
        if settings.state_machine == NO_STATE_MACHINE:
            return None
        snapshots = Snapshots(folder, reserved=settings.snapshots_reserved)
        applied = restore(settings.state_machine, snapshots, store)
        return cls(snapshots=snapshots, applied=applied)


class NoState:
    """Of a member whose log is all there is."""

    applied_index = -1
    snapshot_index = -1
    snapshots_installed = 0
    covered_index = sys.maxsize
    awaited = ""

    def __init__(self, group: str) -> None:
        self.reading = contextlib.nullcontext()
        self._group = group

    def settle(self, committed_index: int) -> None:
        """Apply nothing."""

    def read(self, request: ReadRegisterRequest, reply: Reply) -> None:
        """Refuse."""
        reply(ReadRegisterResponse(code=DLedgerResponseCode.UNSUPPORTED, group=self._group))

    def lacks(self, push: InstallSnapshotRequest) -> bool:
        """Lack nothing."""
        return False

    def heard(self, message: SnapshotMessage) -> None:
        """Have nothing to send."""

    async def save_if_due(self) -> None:
        """Save nothing."""

    async def close(self) -> None:
        """Be done."""


class StateKeeper:
    """Of a member with a state machine."""

    def __init__(
        self,
        opened: OpenedState,
        settings: NodeSettings,
        core: Raft,
        store: LogStore,
        prove: Prove,
        send: Callable[[PeerMessage], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`prove` as `Reads.prove`; `send` sends to a peer; `fail` is told what breaks it all."""
        name = settings.state_machine
        self._core = core
        self._group = settings.group
        self._threshold = settings.snapshot_threshold
        self._snapshots = opened.snapshots
        self._store = store
        self._prove = prove
        self._applying = Applying(name, opened.applied, opened.snapshots, store, fail=fail)
        self._installs = Installs(
            name, opened.snapshots, store, self_id=settings.self_id, send=send, fail=fail
        )
        self.reading = self._applying.reading
        """To be held by whoever replaces the log."""
        self.settle = self._applying.settle
        self.lacks = self._installs.lacks
        self.heard = self._installs.heard

    @property
    def applied_index(self) -> int:
        """All up to here is applied."""
        return self._applying.index

    @property
    def snapshot_index(self) -> int:
        """The newest snapshot includes all up to here."""
        return self._snapshots.newest_index

    @property
    def snapshots_installed(self) -> int:
        """Snapshots that came from other members."""
        return self._installs.installed

    @property
    def covered_index(self) -> int:
        """Up to here the state needs no entry of the log, not even with its oldest snapshot."""
        return covered_index(self._applying.index, self._snapshots)

    @property
    def awaited(self) -> str:
        """What this member waits for before it can take part, for people."""
        return self._installs.awaited

    def read(self, request: ReadRegisterRequest, reply: Reply) -> None:
        """Answer a reader of the register, once all is applied that was acknowledged before."""
        machine = self._applying.machine
        if not isinstance(machine, Register):
            reply(self._answer(request, DLedgerResponseCode.UNSUPPORTED))
            return

        def applied(in_time: bool) -> None:
            code = DLedgerResponseCode.SUCCESS if in_time else DLedgerResponseCode.LEADER_NOT_READY
            reply(self._answer(request, code))

        def proved(code: DLedgerResponseCode) -> None:
            if code is DLedgerResponseCode.SUCCESS:
                self._applying.wait(self._core.committed_index, applied)
            else:
                reply(self._answer(request, code))

        self._prove(proved)

    async def save_if_due(self) -> None:
        """Take a snapshot, if it is time.

        StoreError; StoreFullError, after which the last one stands.
        """
        index = self._applying.index
        if not save_is_due(index, self._threshold, self._snapshots, self._store):
            return
        applied = await self._applying.copy()
        await asyncio.to_thread(
            self._snapshots.save,
            applied.index,
            applied.term,
            applied.machine.dump(),
            self._installs.lent(),
        )

    async def close(self) -> None:
        """Stop, once nothing reads the log any more."""
        await self._installs.close()
        await self._applying.close()
        await asyncio.to_thread(self._snapshots.close)

    def _answer(
        self, request: ReadRegisterRequest, code: DLedgerResponseCode
    ) -> ReadRegisterResponse:
        value = None
        if code is DLedgerResponseCode.SUCCESS and isinstance(self._applying.machine, Register):
            value = self._applying.machine.get(request.key)
        return ReadRegisterResponse(
            code=code,
            group=self._group,
            leader_id=self._core.leader_id,
            term=self._core.term,
            key=request.key,
            value=value,
        )


State: TypeAlias = NoState | StateKeeper


def keep(
    opened: OpenedState | None,
    settings: NodeSettings,
    core: Raft,
    store: LogStore,
    prove: Prove,
    send: Callable[[PeerMessage], None],
    fail: Callable[[BaseException], None],
) -> State:
    """Keep what was opened; as `StateKeeper`."""
    if opened is None:
        return NoState(settings.group)
    return StateKeeper(opened, settings, core, store, prove, send, fail)
