"""One member in service: its parts, and the tasks that keep it going.

An append passes from its connection (`remoting.connection`) to `services.append`, which proposes it
to the core; `shell.loop` then writes, pushes and flushes it, and notifies the service once it is
committed.

Everything that blocks runs in threads: flushes, saves of term and vote, the allocation of segments,
truncations, the state machine. The rest runs on the event loop's thread, so nothing here is locked.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from functools import partial

from dledger_formats.settings import NodeSettings
from dledger_node.closing import Closing
from dledger_node.errors import StoreFullError
from dledger_node.raft.core import Raft
from dledger_node.raft.ready import HardState, ReadState
from dledger_node.remoting.gate import Gate
from dledger_node.remoting.limits import Limits
from dledger_node.remoting.lingering import LINGER_S
from dledger_node.remoting.links import Links
from dledger_node.shell.clients import ClientService
from dledger_node.shell.departure import Departure
from dledger_node.shell.disk_work import DiskWork
from dledger_node.shell.identity import GroupIdentity
from dledger_node.shell.leader_watch import LeaderWatch
from dledger_node.shell.live_settings import LiveSettings
from dledger_node.shell.loop import CoreLoop
from dledger_node.shell.meters import Meters
from dledger_node.shell.peers import LinkOwner, PeerMessages
from dledger_node.shell.ticker import Ticker
from dledger_node.shell.view import MemberView
from dledger_node.shell.writes import StoreWriter
from dledger_node.state_machine import keeper
from dledger_node.state_machine.keeper import OpenedState
from dledger_node.store.log.flush_target import FlushTarget
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.small_files.group_file import GroupFile
from dledger_node.volume.handover import VolumeHandover
from dledger_node.volume.scrub import Scrub
from dledger_node.volume.upkeep import Upkeep

logger = logging.getLogger(__name__)


class DLedgerServer:
    """One member in service: `clients` serves accepted connections, `view` serves HTTP."""

    def __init__(
        self,
        settings: NodeSettings,
        core: Raft,
        store: LogStore,
        *,
        state: OpenedState | None = None,
        save_hard_state: Callable[[HardState], None],
        group_file: GroupFile,
        version: str,
        uniform: Callable[[float, float], float],
        meters: Meters | None = None,
        live: LiveSettings | None = None,
    ) -> None:
        """`live` has the settings in force, and follows later changes of them."""
        self._live = live or LiveSettings(settings)
        settings = self._live.current
        self._name = f"{settings.group} {settings.self_id}"
        self._core, self._store, self._loop = core, store, asyncio.get_running_loop()
        self.fatal: asyncio.Future[None] = self._loop.create_future()
        """A future that gets the error once this member must stop."""
        meters = meters or Meters()
        self._loop_lag, traffic = meters.loop_lag, meters.traffic
        self._ticker = self._member_ticker()
        self._gate = Gate(
            Limits.of(settings),
            self._loop.time,
            traffic=traffic,
            begin_turn=partial(self._begin_turn, self._ticker.wake),
            begin_peer_turn=partial(self._begin_turn, self._ticker.catch_up),
        )
        self._disk = DiskWork(
            settings,
            store,
            save_hard_state,
            begin_turn=self._loop_lag.begin_turn,
            on_durable=self._flushed,
            go_on=self._go_on,
            fail=self.fail,
        )
        self._handover = VolumeHandover(core, self._disk.health, self._turn)
        cut_links = self._gate.cut_links
        self._identity = GroupIdentity(group_file, core, cut_links=cut_links, fail=self.fail)
        self._incarnation = int(uniform(1, 1 << 53))
        owner = self._link_owner(settings)
        self._links = Links(owner, settings, core, uniform=uniform, traffic=traffic)
        self._state = keeper.keep(
            state, settings, store, core, send=self._links.send_one, fail=self.fail
        )
        self._core_loop = self._driven_core()
        self._disk.waits.drive(self._core_loop)
        self._upkeep = self._store_upkeep(settings, meters)
        self._departure = Departure(core, self._turn, self._loop.time, settings)
        leave = self._departure.begin
        self._scrub = Scrub(settings, store, meters.mended, core, leave=leave)
        self.clients = self._client_service(settings, self._peer_messages(owner))
        self._disk.health.watch(owner, self.clients.disk_reads, self.clients.program_reads)
        self.view = self._member_view(version, watch := LeaderWatch(core))
        self._core_loop.listen([*self.clients.listeners, self, self._state, watch, self._identity])

    def _link_owner(self, settings: NodeSettings) -> LinkOwner:
        return LinkOwner(
            settings,
            self._core,
            self._store,
            incarnation=self._incarnation,
            identity=self._identity,
            turn=self._turn,
            begin_turn=self._loop_lag.begin_turn,
        )

    def _client_service(self, settings: NodeSettings, peers: PeerMessages) -> ClientService:
        return ClientService(
            settings,
            self._core,
            self._core_loop,
            self._store,
            self._disk.room,
            self._state,
            gate=self._gate,
            identity=self._identity,
            tokens=self._live.tokens,
            peers=peers,
            send=self._links.send_one,
            incarnation=self._incarnation,
        )

    def _driven_core(self) -> CoreLoop:
        disk = self._disk
        writer = StoreWriter(self._store, disk.group_commit, disk.waits, self._state.reading)
        return CoreLoop(
            self._core,
            writer,
            self._links,
            confirm_unflushed=disk.confirms_unflushed,
            release_reads=self._release_reads,
            fail=self.fail,
            catch_up=self._ticker.catch_up,
        )

    def _member_ticker(self) -> Ticker:
        return Ticker(
            self._core,
            tick=self._tick,
            at_rest_until_s=self._at_rest_until_s,
            late=self._loop_lag.timer_fired,
        )

    def _store_upkeep(self, settings: NodeSettings, meters: Meters) -> Upkeep:
        return Upkeep(
            settings,
            self._store,
            self._core,
            self._disk.health,
            self._state,
            clock=meters.wall_clock,
            is_saving=self._disk.is_saving,
            send=self._links.send_one,
            fail=self.fail,
        )

    def _peer_messages(self, owner: LinkOwner) -> PeerMessages:
        return PeerMessages(
            self._links,
            owner,
            self._core_loop,
            self._store,
            self._disk.health,
            self._disk.room,
            self._state,
            self._upkeep,
            core=self._core,
            proofs=lambda: self.clients.proofs,
            fatal=self.fatal,
            fail=self.fail,
        )

    def _member_view(self, version: str, leader_watch: LeaderWatch) -> MemberView:
        return MemberView(
            live=self._live,
            identity=self._identity,
            version=version,
            core=self._core,
            store=self._store,
            group_commit=self._disk.group_commit,
            upkeep=self._upkeep,
            scrub=self._scrub,
            state=self._state,
            gate=self._gate,
            links=self._links,
            appends=self.clients.appends,
            passed_on=self.clients.passed_on,
            idempotent=self.clients.idempotent,
            leader_watch=leader_watch,
        )

    # -- start and stop --------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the links and the clock going until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._links.run(), name="links")
            tasks.create_task(self._ticker.run(), name="ticks")
            tasks.create_task(self._upkeep.run(), name="upkeep")
            tasks.create_task(self._scrub.run(), name="scrub")
            tasks.create_task(self._gate.keep_times(), name="connections")
            tasks.create_task(self._live.run(self._take_settings), name="settings")

    def _take_settings(self, settings: NodeSettings) -> None:
        """Apply live settings; limits of a connection apply to those accepted from now on."""
        self._gate.take_limits(Limits.of(settings, self._gate.limits))
        for part in (self.clients, self._upkeep, self._scrub):
            part.take_settings(settings)

    async def hand_over(self, timeout_s: float) -> None:
        """Transfer the leadership, if this member leads, before it stops."""
        await self.clients.transfers.hand_over(timeout_s)

    async def drain(self, timeout_s: float) -> None:
        """Take no further appends; wait until none waits, or the timeout has passed."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.clients.drained(), timeout_s)

    async def close(self) -> None:
        """Close all parts, the store last, even if some fail. Raises the first error."""
        closing = Closing()
        closing.step(self.clients.give_up)
        closing.step(self._gate.close)
        await closing.wait(lambda: self._gate.ended(LINGER_S))
        await closing.wait(self._state.close)
        await self._disk.close(closing)
        closing.step(self._scrub.close)
        closing.step(self._save_checkpoint)
        closing.step(self._store.close)
        closing.end()

    def _save_checkpoint(self) -> None:
        with contextlib.suppress(StoreFullError):
            self._store.save_checkpoint(self._core.readable_index)

    def on_turn(self, committed_index: int) -> None:
        """Mark the producers' stable entries, and choose again which links to keep up."""
        self._store.producers.table.mark_stable(min(committed_index, self._store.durable_index))
        self._links.arrange()

    # -- the clock -------------------------------------------------------------------------------

    def _begin_turn(self, wake: Callable[[], None]) -> None:
        """Measure the turn that begins with input, and bring the core's time up to date."""
        self._loop_lag.begin_turn()
        wake()

    def _tick(self, elapsed_ticks: int) -> None:
        """Let one tick pass, and end the waits that are too long."""
        self._loop_lag.begin_turn()
        if self._store.damage is not None:
            self._scrub.wake()
        self._watch_storage()
        if self._core.leads or not self._disk.health.stalled:
            self._core_loop.tick(elapsed_ticks, has_room=not self._disk.health.full)
        self.clients.expire(self._loop.time())

    def _at_rest_until_s(self) -> float:
        """Return the time up to which only the core needs a tick; a past time if others do."""
        if (
            self._departure.begun
            or self._store.damage is not None
            or not self._disk.health.is_quiet
        ):
            return -math.inf
        return self.clients.next_deadline_s

    def _watch_storage(self) -> None:
        if (damage := self._departure.due()) is not None:
            self.fail(damage)
        else:
            self._handover.watch()

    # -- callbacks of the parts that are built before the loop -----------------------------------

    def _turn(self, give: Callable[[], None]) -> None:
        self._core_loop.turn(give)

    def _flushed(self, target: FlushTarget) -> None:
        self._loop_lag.begin_turn()
        self._core_loop.persisted(target.end_index, target.end_term)

    def _go_on(self) -> None:
        """Take the pushes and entries that waited until the log takes entries again."""
        self._loop_lag.begin_turn()
        if not self.fatal.done():
            self.clients.go_on()

    def _release_reads(self, reads: Sequence[ReadState]) -> None:
        self.clients.proofs.proved(reads)

    def fail(self, error: BaseException) -> None:
        """Stop, and give the core no further input: its state and the disk may differ."""
        self._core_loop.halt()
        if not self.fatal.done():
            logger.critical("%s must stop", self._name, exc_info=error)
            self.fatal.set_exception(error)
