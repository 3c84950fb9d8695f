"""The broker around a member: its parts, its listener and its clock."""

import asyncio
import math
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from dledger_broker import request_table
from dledger_broker.door.between_members import door_frames
from dledger_broker.door.between_members.member_leader import MemberLeader
from dledger_broker.door.between_members.member_links import MemberLinks
from dledger_broker.door.calls.call import Call
from dledger_broker.door.calls.dispatcher import BrokerRequests
from dledger_broker.door.connections import listening_sockets
from dledger_broker.door.connections.connection import BrokerConnection
from dledger_broker.door.connections.listeners import AcceptAt, Listeners
from dledger_broker.door.consumer_groups.group_clients import GroupClients
from dledger_broker.door.consumer_groups.group_requests import GroupRequests
from dledger_broker.door.consumer_groups.heartbeats import Heartbeats
from dledger_broker.door.consumer_groups.presence import Presence
from dledger_broker.door.draining.isolation import Isolation
from dledger_broker.door.draining.planned_stop import PlannedStop
from dledger_broker.door.passing_on.from_doors import FromDoors
from dledger_broker.door.passing_on.to_leader import ToLeader
from dledger_broker.door.reading.proofs import Proofs
from dledger_broker.door.reading.pulled_messages import LoopReads
from dledger_broker.door.reading.pulls import Pulls
from dledger_broker.door.sending.awaited_repeats import AwaitedRepeats
from dledger_broker.door.sending.sends import Sends
from dledger_broker.leading.client_leases import ClientLeases
from dledger_broker.leading.delay_walker import DelayWalker
from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.leading.offset_commits import OffsetCommits
from dledger_broker.leading.queue_locks import QueueLocks
from dledger_broker.leading.state_changes import StateChanges
from dledger_broker.metrics import BrokerCounters
from dledger_broker.pace import Pace
from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.cached_reads import cached_reader
from dledger_broker.queues.feed import QueueFeed
from dledger_broker.queues.first_messages import FirstMessages
from dledger_broker.queues.first_messages_reading import FirstMessagesReading
from dledger_broker.queues.reader import MessageReader
from dledger_broker.queues.undelivered import UndeliveredMessages
from dledger_broker.registration.addresses import Addresses
from dledger_broker.registration.announcer import Announcer
from dledger_broker.request_table import Parts
from dledger_broker.settings import BrokerSettings
from dledger_broker.state_at_start import StateAtStart
from dledger_broker.state_figures import StateFigures
from dledger_node.closing import Closing
from dledger_node.config import store_folder
from dledger_node.embedding import Member

PULL_THREADS: Final = 2
OTHER_THREADS: Final = 2
"""The threads that read everything besides pulls and delayed messages."""


class Broker:
    """The broker of one member in service."""

    def __init__(
        self,
        settings: BrokerSettings,
        member: Member,
        counters: BrokerCounters,
        accept_at: AcceptAt = listening_sockets.accept_at,
    ) -> None:
        """`accept_at` accepts connections at a port."""
        self._accept_at = accept_at
        now_s = asyncio.get_running_loop().time
        self._settings = settings
        self._member = member
        self._counters = counters
        self.addresses = Addresses(settings)
        """The addresses that are published to clients."""
        store_host = self._store_host = self.addresses.store_host
        self._state_at_start = StateAtStart(member)
        self._owner = LogOwner(member, store_host)
        member.own(self._owner)
        self._changes = StateChanges(self._owner)
        self._commits = OffsetCommits(self._owner, self._changes)
        self._clients = GroupClients(self._owner)
        self._leases = ClientLeases(self._owner, self._changes, now_s, lambda: member.member_ids)
        self._locks = QueueLocks(self._owner, self._changes, now_s)
        # Each has its own queue: neither pulls that read much nor long batches hold up the others.
        self._pull_threads = ThreadPoolExecutor(PULL_THREADS, thread_name_prefix="pulls")
        self._delay_thread = ThreadPoolExecutor(1, thread_name_prefix="delays")
        self._batch_thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._threads = ThreadPoolExecutor(OTHER_THREADS, thread_name_prefix="messages")
        awaited = self._awaited = AwaitedRepeats(member, now_s)
        self._pace = Pace(self._is_idle, self._due_in_s)
        self._proofs = Proofs(member, self._pace.hurry)
        self._sends = Sends(
            settings, member, self._owner, awaited, self._threads, self._batch_thread, store_host
        )
        self._to_leader = ToLeader(
            MemberLeader(member, self._owner),
            MemberLinks(settings.node, member).open,
            self._serve_as_leader,
            counters,
            now_s,
        )
        self._from_doors = FromDoors(member, self._to_leader)
        member.serve_peers(door_frames.REQUESTS_CODE, self._from_doors.serve)
        self._figures = StateFigures(lambda: self._owner.state, counters, now_s)
        self._presence = Presence(
            member.self_id, self._clients, self._to_leader, now_s,
            may_send=lambda: member.leader_id is not None and not self._stop.takes_no_more,
        )  # fmt: skip
        self._heartbeats = Heartbeats(
            self._owner, self._clients, self._leases, self._presence, self._to_leader
        )
        self._groups = GroupRequests(self._owner, self._commits, self._changes, self._leases)
        self._isolation: Isolation | None = None
        self._announcer = Announcer(
            settings, self.addresses, member, self._owner, self._threads, counters,
            is_isolated=lambda: self._isolation is not None and self._isolation.is_isolated,
        )  # fmt: skip
        self._requests: BrokerRequests | None = None
        self._feed = QueueFeed(
            member, store_folder(settings.node), built=self._built, rebuilding=self._rebuilding
        )
        self._front_reading: FirstMessagesReading | None = None
        self._pulls: Pulls | None = None
        self._walker: DelayWalker | None = None
        self._undelivered: UndeliveredMessages | None = None
        self._listeners: Listeners | None = None
        self._stop = PlannedStop(settings, member)
        member.keep_entries(self._covered_index)
        member.call_when_applied(lambda _: self._applied())

    @property
    def why_not_serving(self) -> str:
        """Why this member should get no clients, in words; empty if it should get them."""
        if self._stop.has_begun:
            return "the broker is stopping"
        if self._listeners is None or not self._listeners.is_open:
            return "the broker is opening its consume queues"
        return self._state_at_start.why_behind

    async def run(self) -> None:
        """Open the queues, listen, and keep the clock going until cancelled."""
        store = await self._feed.open()
        member = self._member
        front = FirstMessages(member)
        self._front_reading = FirstMessagesReading(front, shown=self._built, failed=member.fail)
        reader = MessageReader(
            store, member.stored_at, lambda: member.begin_pos, self._owner.created_index,
            lambda: member.begin_index, front,
        )  # fmt: skip
        self._pulls = Pulls(
            self._owner, self._clients, self._feed, reader, self._pull_threads, member,
            self._proofs, self._pass_on,
            LoopReads(
                cached_reader(store, member, self._owner.created_index), member.read_turns
            ),
        )  # fmt: skip
        self._isolation = Isolation(self._settings.node, member, self._pulls, self._to_leader)
        self._walker = DelayWalker(
            self._owner, self._feed, reader, self._delay_thread, self._store_host
        )
        self._undelivered = UndeliveredMessages(member, self._feed, reader, self._threads)
        parts = Parts(
            settings=self._settings, addresses=self.addresses, member=member,
            counters=self._counters, threads=self._threads, owner=self._owner,
            changes=self._changes, commits=self._commits, queue_locks=self._locks,
            feed=self._feed, sends=self._sends, awaited=self._awaited, proofs=self._proofs,
            heartbeats=self._heartbeats, groups=self._groups,
        )  # fmt: skip
        requests = self._requests = BrokerRequests(
            request_table.of_every_member(parts, self._pulls, reader),
            request_table.of_the_leader(parts, reader),
            request_table.of_the_leader_to_members(parts, self._pulls),
            self._to_leader,
            self._pace.hurry,
        )
        self._from_doors.open(requests.take_passed_on)

        def accept() -> BrokerConnection:
            return BrokerConnection(member, requests, self._forget)

        listeners = self._listeners = Listeners(self._settings, accept, self._accept_at)
        await listeners.open()
        watch = asyncio.create_task(self._follow_leader())
        self._announcer.start()
        try:
            while True:
                await self._pace.next_look()
                self._tick()
                await listeners.share(is_wanted=not self._isolation.is_isolated)
        finally:
            watch.cancel()
            self._announcer.close()
            listeners.close()

    async def _follow_leader(self) -> None:
        """Notify the parts of each change of the leader, so that requests go on to it."""
        while True:
            token = self._member.leader_token
            self._to_leader.leader_changed()
            self._presence.leader_changed()
            if self._pulls is not None:
                self._pulls.leader_changed()
            self._pace.hurry()
            await self._member.leader_changed(token)

    async def drain(self) -> None:
        """Send clients away, and answer what was read; see `planned_stop`."""
        self._announcer.leave()
        self._pace.hurry()
        if self._listeners is None or self._pulls is None or self._requests is None:
            return  # no client has been accepted
        await self._stop.run(self._listeners, self._requests, self._pulls, self._member.gate)

    async def close(self) -> None:
        """Close all parts, whatever fails. Raises the first error."""
        closing = Closing()
        # A port may have been bound before another one failed.
        for part in (self._listeners, self._commits, self._to_leader):
            if part is not None:
                closing.step(part.close)
        if self._pulls is not None:
            await closing.wait(self._pulls.close)
        await closing.wait(self._feed.close)
        if self._front_reading is not None:
            await closing.wait(self._front_reading.close)
        await closing.wait(self._announcer.closed)
        for threads in (
            self._pull_threads, self._delay_thread, self._batch_thread, self._threads,
        ):  # fmt: skip
            await closing.wait(partial(asyncio.to_thread, threads.shutdown))
        closing.end()

    def _pass_on(self, pull: Call) -> None:
        """Let the leader answer a pull."""
        self._pace.hurry()
        self._to_leader.take(pull)

    def _serve_as_leader(self, call: Call) -> None:
        assert self._requests is not None
        self._requests.serve_as_leader(call)

    # -- what happens ------------------------------------------------------------------------------

    def _applied(self) -> None:
        """Let everything go on that waits until entries are applied."""
        self._member.drafts.go_on()
        self._awaited.go_on()
        self._to_leader.go_on()
        self._heartbeats.go_on()
        self._clients.notify_changed()
        self._changes.go_on()
        self._proofs.go_on()
        self._pace.hurry()

    def _forget(self, line: BrokerConnection) -> None:
        """Forget a connection that is gone."""
        if self._pulls is not None:
            self._pulls.forget(line)
        self._heartbeats.forget(line)
        self._pace.hurry()

    def _covered_index(self) -> int:
        """Return the index up to which neither queues nor delayed messages need the log."""
        if self._undelivered is None:
            return -1
        return min(self._feed.saved_index, self._undelivered.covered_index)

    def _built(self, queues: Iterable[QueueId]) -> None:
        if self._pulls is not None:
            self._pulls.built(queues)
        if self._walker is not None:
            self._walker.tick()

    def _rebuilding(self) -> None:
        self._counters.values["queue_rebuilds"] += 1

    def _is_idle(self) -> bool:
        """Return whether nothing needs a tick soon."""
        return (
            self._is_all_decided()
            and self._proofs.is_idle
            and self._presence.is_idle
            and (self._front_reading is None or self._front_reading.is_idle)
            and not (self._leases.is_sweeping or self._locks.is_sweeping)
            and not self._figures.is_counting
            and not self._stop.has_begun
            and self._member.leader_id is not None
        )

    def _due_in_s(self) -> float:
        return self._walker.due_in_s() if self._walker is not None else math.inf

    def _is_all_decided(self) -> bool:
        """Return whether no request waits for the leader, or for its entry to be applied."""
        return (
            self._to_leader.count == 0
            and self._member.drafts.pending_count == 0
            and self._sends.is_idle
            and self._awaited.is_idle
            and self._changes.is_idle
            and self._commits.is_idle
            and self._heartbeats.is_idle
        )

    def _has_answered_all(self) -> bool:
        """Return whether no request waits for its answer, apart from held pulls."""
        return self._is_all_decided() and not any(
            guest.reads_waiting
            for guest in self._member.gate.everyone()
            if isinstance(guest, BrokerConnection)
        )

    def _tick(self) -> None:
        """End the waits that are too long, and update the figures."""
        if self._stop.takes_no_more and self._has_answered_all():
            self._stop.has_answered_all()
        self._awaited.go_on()
        self._proofs.expire()
        self._to_leader.tick()
        self._heartbeats.go_on()
        self._presence.tick()
        self._leases.tick()
        self._locks.tick()
        if self._front_reading is not None:
            self._front_reading.tick()
        if self._walker is not None:
            self._walker.tick()
        if self._undelivered is not None:
            self._undelivered.tick()
        if self._isolation is not None:
            self._isolation.tick()
        self._feed.tick()
        self._figures.tick()
        self._announcer.tick()
        values = self._counters.values
        values["requests_waiting"] = self._to_leader.count
        values["pending_messages"] = self._member.drafts.pending_count
        values["built_index"] = built = self._feed.built_index
        values["unbuilt_entries"] = max(0, self._member.applied_index - built)
        values["units_refused"] = self._feed.refusals
        values["queue_file_bytes"] = self._feed.disk_bytes
        if self._pulls is not None:
            self._pulls.expire()
            values["held_pulls"] = self._pulls.held.count
