"""The node's one loop: ticks, messages and appends go into the core; what it asks for is done here.

Everything but the flush runs on the event loop's thread, so nothing here is locked. The appends of
one turn of the loop, or of a part of it where they are many, become one proposal, one run of bytes
in the store, one push and one flush (`appends`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from dledger_formats.http.status import FlushDiskType, LeaderView, Manifest, NodeStatus
from dledger_formats.protocol import frames, requests
from dledger_formats.settings import NodeSettings
from dledger_node.config import TICK_MS
from dledger_node.errors import StoreError, StoreFullError
from dledger_node.http import status
from dledger_node.http.metrics import Counters
from dledger_node.raft.core import Raft
from dledger_node.raft.messages import (
    AppendRequest,
    HeldByAllNotice,
    InstallSnapshotRequest,
    TakeLeadershipRequest,
)
from dledger_node.raft.ready import HardState, Ready
from dledger_node.remoting import native
from dledger_node.remoting.gate import Gate
from dledger_node.remoting.limits import Limits
from dledger_node.remoting.links import Links
from dledger_node.remoting.snapshot_messages import SnapshotChunk, SnapshotChunkRequest
from dledger_node.services.append import Appends
from dledger_node.services.follow import Follows
from dledger_node.services.get import Reads
from dledger_node.services.membership import MembershipChanges
from dledger_node.services.transfer import Leadership
from dledger_node.shell import pushes, writes
from dledger_node.shell.leader_watch import LeaderWatch
from dledger_node.state_machine import keeper
from dledger_node.state_machine.keeper import OpenedState
from dledger_node.store.log.flush_target import FlushTarget
from dledger_node.store.log.log_store import LogStore
from dledger_node.volume.group_commit import GroupCommit
from dledger_node.volume.health import VolumeHealth, transfer_leadership
from dledger_node.volume.upkeep import Upkeep

logger = logging.getLogger(__name__)

T = TypeVar("T")

SWEEP_INTERVAL_S: Final = 1.0
ASYNC_FLUSH_INTERVAL_S: Final = 0.01  # flushFileInterval of Java, whose flush is of this kind
CATCH_UP_TICKS_MAX: Final = 2
TRANSFER_TIMEOUTS: Final = 2  # election timeouts: to take over, and to be heard


class DLedgerServer:
    """One member. `fatal` is resolved when it must stop."""

    def __init__(
        self,
        settings: NodeSettings,
        core: Raft,
        store: LogStore,
        *,
        state: OpenedState | None = None,
        save_hard_state: Callable[[HardState], None],
        version: str,
        uniform: Callable[[float, float], float],
    ) -> None:
        self.group = settings.group
        self.self_id = settings.self_id
        self._settings = settings
        self._core = core
        self._store = store
        self._save_hard_state = save_hard_state
        self._version, self._life = version, int(uniform(1, 1 << 53))
        self._loop = asyncio.get_running_loop()
        self.gate = Gate(Limits.of(settings), self._loop.time)
        self.fatal: asyncio.Future[None] = self._loop.create_future()
        self._async_flush = settings.flush_disk_type is FlushDiskType.ASYNC_FLUSH
        self._executor = ThreadPoolExecutor(2, thread_name_prefix="store")
        self._group_commit = GroupCommit(
            store,
            self._executor,
            interval_s=ASYNC_FLUSH_INTERVAL_S if self._async_flush else 0.0,
            on_durable=self._durable,
            on_failed=self._fail,
        )
        self._health = VolumeHealth(
            store, self._group_commit, stall_s=settings.flush_stall_ms / 1000
        )
        self._links = Links(self, settings, core, uniform=uniform)
        self._reads = Reads(core, store, group=settings.group, drive=self._drive)
        self._appends = Appends(
            settings,
            core,
            store,
            has_room=self._has_room,
            drive=self._drive,
            prove=self._reads.prove,
        )
        self._leadership = Leadership(
            core,
            group=settings.group,
            timeout_s=TRANSFER_TIMEOUTS * settings.election_timeout_ms / 1000,
            drive=self._drive,
        )
        self._state = keeper.keep(
            state, settings, core, store, self._reads.prove, self._links.send, self._fail
        )
        self._upkeep = Upkeep(
            settings, store, core, self._health, self._state, send=self._links.send, fail=self._fail
        )
        self._membership_changes = MembershipChanges(
            core,
            store,
            group=settings.group,
            has_room=self._has_room,
            drive=self._drive,
            prove=self._reads.prove,
        )
        self._follows = Follows(core, store, group=settings.group)
        self._leader_watch = LeaderWatch(core)
        self._name_requests()

    def _name_requests(self) -> None:
        """What connections, HTTP and who stops it ask for, each part answers itself."""
        self.get = self._reads.get
        self.append = self._appends.gather
        self.append_idempotent = self._appends.gather_idempotent
        self.append_batches = self._appends.gather_batches
        self.register_producer = self._appends.once.register
        self.transfer_leadership = self._leadership.request
        self.hand_over = self._leadership.hand_over
        self.read_register = self._state.read
        self.change_membership = self._membership_changes.request
        self.follow = self._follows.take
        self.leader_changed = self._leader_watch.leader_changed
        self.read_file = self._store.segments.read

    # -- life ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the links and the clock going until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._links.run(), name="links")
            tasks.create_task(self._tick_for_ever(), name="ticks")
            tasks.create_task(self._upkeep.run(), name="upkeep")
            tasks.create_task(self._sweep_for_ever(), name="connections")

    async def close(self) -> None:
        """Answer what waits, flush, and leave the store in order."""
        self._appends.give_up()
        self._membership_changes.give_up()
        self.gate.close()
        await self._state.close()
        await self._group_commit.drain()
        self._executor.shutdown()
        try:
            with contextlib.suppress(StoreFullError):
                self._store.save_checkpoint(self._core.committed_index)
        finally:
            self._store.close()

    async def drain(self, timeout_s: float) -> None:
        """Give the appends that wait for their quorum a last chance."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._appends.drained(), timeout_s)

    async def _tick_for_ever(self) -> None:
        """Tick at a steady rate; after a pause, not all at once: messages wait to be read first."""
        tick_s = TICK_MS / 1000
        next_s = self._loop.time() + tick_s
        while True:
            await asyncio.sleep(next_s - self._loop.time())
            next_s = max(next_s + tick_s, self._loop.time() - CATCH_UP_TICKS_MAX * tick_s)
            self._watch_storage()
            if self._health.may_campaign or self._core.leads:
                self._drive(self._core.tick, at_tick=True)
            # Otherwise it must not stand for election: it could not write a leader's first entry.
            self._appends.expire()
            self._follows.expire()
            self._membership_changes.expire()

    async def _sweep_for_ever(self) -> None:
        """Once a second, close the connections that exceed a limit of time."""
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_S)
            self.gate.sweep()

    def _watch_storage(self) -> None:
        if self._health.damage is not None:
            self._fail(self._health.damage)
        elif (attempt := self._health.check()) is not None:
            self._drive(lambda: transfer_leadership(self._core, attempt))

    def _fail(self, error: BaseException) -> None:
        """Stop, and hear nobody till then: what is believed and what is on disk may differ."""
        if not self.fatal.done():
            logger.critical("%s %s must stop", self.group, self.self_id, exc_info=error)
            self.fatal.set_exception(error)

    # -- the core's work -------------------------------------------------------------------------

    def _drive(self, give: Callable[[], None] | None = None, *, at_tick: bool = False) -> None:
        """Give the core an input, then do what it asks for until it asks no more.

        If it asks for nothing, nothing has changed that anybody waits for, or they learn of it at
        the next tick. Whatever breaks on the way ends this member: its core, its disk and what it
        has said could contradict each other from then on.
        """
        if self.fatal.done():
            return
        changed = at_tick
        try:
            if give is not None:
                give()
            while (ready := self._core.ready()) is not None:
                changed = True
                self._do(ready)
                self._core.advance(ready)
                if self._async_flush and ready.writes:
                    self._core.persisted(self._store.end_index, self._store.end_term)
        except Exception as error:
            self._fail(error)
            return
        self._group_commit.start()
        if changed:
            self._settle()

    def _settle(self) -> None:
        """Let everybody see what has come of it; those first whose clients wait."""
        committed_index = self._core.committed_index
        self._appends.settle(committed_index)
        self._store.producers.table.mark_stable(min(committed_index, self._store.durable_index))
        self._links.arrange()
        self._state.settle(committed_index)
        self._reads.settle(committed_index)
        self._leadership.settle()
        self._membership_changes.settle()
        self._follows.settle()
        self._leader_watch.settle()

    def _do(self, ready: Ready) -> None:
        """Do one batch of work, in the order that `Ready` demands."""
        if ready.hard_state is not None:
            self._save_hard_state(ready.hard_state)
        for write in ready.writes:
            writes.do(write, self._store, self._state.reading)
        for message in ready.messages:
            self._links.send(message)
        self._reads.proved(ready.reads)

    def _durable(self, target: FlushTarget) -> None:
        self._drive(lambda: self._core.persisted(target.end_index, target.end_term))

    def _has_room(self, body_sizes: Sequence[int]) -> bool:
        if self._health.nearly_full:
            return False
        reserve = partial(self._store.reserve, body_sizes)
        return bool(self._attempt(partial(self._health.try_reserve, reserve)))

    def _attempt(self, work: Callable[[], T]) -> T | None:
        """What the store gives; None when it breaks, which ends this member."""
        try:
            return work()
        except StoreError as error:
            self._fail(error)
            return None

    # -- clients' requests -------------------------------------------------------------------------

    def metadata(self) -> requests.MetadataResponse:
        """Who is in the group, and who leads it."""
        return requests.MetadataResponse(
            group=self.group,
            local_id=self.self_id,
            leader_id=self._core.leader_id,
            term=self._core.term,
            peers=status.peers(self._core, self._settings),
            voters=self._core.memberships.current.voters,
            learners=self._core.memberships.current.learners,
            addable=status.addable(self._core, self._settings),
            membership_index=self._core.memberships.last_index,
            joining=bool(self._core.joining),
        )

    # -- peers -----------------------------------------------------------------------------------

    def hello(self, peer_id: str) -> native.Hello:
        """Say who is calling."""
        return native.Hello(
            group=self.group,
            sender_id=self.self_id,
            receiver_id=peer_id,
            segment_size_bytes=self._settings.segment_size_bytes,
            life=self._life,
        )

    def refuse_hello(self, hello: native.Hello) -> str | None:
        """Say why this caller may not open a link; None when it may."""
        return native.refusal(hello, self.hello(hello.sender_id), self._links)

    def peer_message(self, message: native.PeerMessage) -> None:
        """Pass a message on, once the bytes that it carries are judged and have room."""
        if self._health.stalled or self.fatal.done():
            return  # what it leads to would wait for the disk, or contradict it
        match message:
            case HeldByAllNotice():
                self._upkeep.receive(message)
                return
            case SnapshotChunkRequest() | SnapshotChunk():
                self._state.heard(message)
                return
            case InstallSnapshotRequest() if self._state.lacks(message):
                return  # the leader tries again
            case TakeLeadershipRequest() if not self._health.may_campaign:
                return  # as at a tick
            case AppendRequest() | InstallSnapshotRequest():
                judge = partial(pushes.judged, message, self._store, self._health)
                judged = self._attempt(judge)
                if judged is None:
                    return  # the leader tries again
                message = judged
        self._drive(lambda: self._core.step(message))

    def read_entries(
        self, push: pushes.Push, bytes_max: int
    ) -> tuple[Sequence[frames.Buffer], int] | None:
        """Stored bytes of a push, unless it is out of date: this member leads that term no more, or
        has removed the entries.
        """
        if not self._core.leads or self._core.term != push.term:
            return None
        if push.first_index < self._store.begin_index:
            return None
        tail = self._store.tail(push.first_index, push.last_index)
        if tail is not None and len(tail) <= bytes_max:
            return (tail,), push.last_index
        return self._store.read_range(push.first_index, push.last_index, bytes_max)

    def link_restored(self, peer_id: str) -> None:
        """Tell the core. Perhaps the peer hung up over what it was pushed: that is looked at."""
        self._store.distrust()
        logger.info("link to %s is up", peer_id)
        self._drive(lambda: self._core.link_restored(peer_id))

    def link_lost(self, peer_id: str) -> None:
        """Tell the core."""
        self._drive(lambda: self._core.link_lost(peer_id))

    # -- what HTTP shows ---------------------------------------------------------------------------

    def status(self) -> NodeStatus:
        """This member's view of the group."""
        return status.node_status(
            self._core, self._settings, self._upkeep.view(), self._links.up(), self._version
        )

    def leader_view(self) -> LeaderView:
        """Who leads."""
        return status.leader_view(self._core)

    def manifest(self) -> Manifest:
        """Every file, readable up to the committed index."""
        committed_index = self._core.committed_index
        return Manifest(
            status=self.status(),
            data=self._store.segments.data(committed_index),
            index=self._store.segments.index(committed_index),
        )

    def counters(self) -> Counters:
        """What was counted since the start."""
        return Counters(
            appends_acknowledged=self._appends.acknowledged,
            appends_refused=self._appends.refused,
            appends_unknown=self._appends.unknown,
            appends_repeated=self._appends.once.repeated,
            producers=len(self._store.producers.table),
            flushes=self._group_commit.flushes,
            pending_appends=self._appends.pending.count,
            pending_bytes=self._appends.pending.body_bytes,
            applied_index=self._state.applied_index,
            snapshot_index=self._state.snapshot_index,
            snapshots_installed=self._state.snapshots_installed,
            segments_removed=self._upkeep.segments_removed,
            segments_forced=self._upkeep.segments_forced,
            healed_ranges=self._upkeep.healing.healed_ranges,
            healed_entries=self._upkeep.healing.healed_entries,
            healing_missing_entries=self._upkeep.healing.missing_entries,
            messages_refused={cause.value: count for cause, count in self._core.refusals.items()},
            connections=self.gate.connections,
            buffered_bytes=self.gate.received_bytes + self.gate.unsent_bytes,
            connections_closed=self.gate.closed_by_reason,
            messages_dropped={link.peer_id: link.dropped for link in self._links},
        )
