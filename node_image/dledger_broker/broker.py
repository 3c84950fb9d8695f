"""The broker around a member: what leads, what passes requests on, and the clock that drives all.

What needs the consume queues begins once these are open (`serving`).
"""

import asyncio
import math
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from dledger_broker.door.between_members import door_frames
from dledger_broker.door.between_members.member_leader import MemberLeader
from dledger_broker.door.between_members.member_links import MemberLinks
from dledger_broker.door.calls.call import Call
from dledger_broker.door.connections import listening_sockets
from dledger_broker.door.connections.connection import BrokerConnection
from dledger_broker.door.connections.listeners import AcceptAt
from dledger_broker.door.consumer_groups.group_clients import GroupClients
from dledger_broker.door.consumer_groups.group_requests import GroupRequests
from dledger_broker.door.consumer_groups.heartbeats import Heartbeats
from dledger_broker.door.consumer_groups.presence import Presence
from dledger_broker.door.draining.planned_stop import PlannedStop
from dledger_broker.door.passing_on.from_doors import FromDoors
from dledger_broker.door.passing_on.to_leader import ToLeader
from dledger_broker.door.reading.proofs import Proofs
from dledger_broker.door.sending.awaited_repeats import AwaitedRepeats
from dledger_broker.door.sending.sends import Sends
from dledger_broker.leading.client_leases import ClientLeases
from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.leading.offset_commits import OffsetCommits
from dledger_broker.leading.queue_locks import QueueLocks
from dledger_broker.leading.state_changes import StateChanges
from dledger_broker.metrics import BrokerCounters
from dledger_broker.pace import Pace
from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.feed import QueueFeed
from dledger_broker.registration.addresses import Addresses
from dledger_broker.registration.announcer import Announcer
from dledger_broker.request_table import Parts
from dledger_broker.serving import Serving
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
        store_host = self.addresses.store_host
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
        self._serving: Serving | None = None
        """What serves clients, once the consume queues are open."""
        self._announcer = Announcer(
            settings, self.addresses, member, self._owner, self._threads, counters,
            is_isolated=lambda: self._serving is not None and self._serving.isolation.is_isolated,
        )  # fmt: skip
        self._feed = QueueFeed(
            member, store_folder(settings.node), built=self._built, rebuilding=self._rebuilding
        )
        self._stop = PlannedStop(settings, member)
        member.keep_entries(self._covered_index)
        member.call_when_applied(lambda _: self._applied())

    @property
    def why_not_serving(self) -> str:
        """Why this member should get no clients, in words; empty if it should get them."""
        if self._stop.has_begun:
            return "the broker is stopping"
        if self._serving is None or not self._serving.listeners.is_open:
            return "the broker is opening its consume queues"
        return self._state_at_start.why_behind

    async def run(self) -> None:
        """Open the queues, listen, and keep the clock going until cancelled."""
        store = await self._feed.open()
        serving = self._serving = Serving(
            self._parts(), store, self._clients, self._to_leader, self._accept_at,
            pull_threads=self._pull_threads, delay_thread=self._delay_thread,
            hurry=self._pace.hurry,
        )  # fmt: skip
        self._from_doors.open(serving.requests.take_passed_on)
        await serving.listeners.open()
        watch = asyncio.create_task(self._follow_leader(serving))
        self._announcer.start()
        try:
            while True:
                await self._pace.next_look()
                self._tick()
                await serving.listeners.share(is_wanted=not serving.isolation.is_isolated)
        finally:
            watch.cancel()
            self._announcer.close()
            serving.listeners.close()

    def _parts(self) -> Parts:
        return Parts(
            settings=self._settings, addresses=self.addresses, member=self._member,
            counters=self._counters, threads=self._threads, owner=self._owner,
            changes=self._changes, commits=self._commits, queue_locks=self._locks,
            feed=self._feed, sends=self._sends, awaited=self._awaited, proofs=self._proofs,
            heartbeats=self._heartbeats, groups=self._groups,
        )  # fmt: skip

    async def _follow_leader(self, serving: Serving) -> None:
        """Notify the parts of each change of the leader, so that requests go on to it."""
        while True:
            token = self._member.leader_token
            self._to_leader.leader_changed()
            self._presence.leader_changed()
            serving.pulls.leader_changed()
            self._pace.hurry()
            await self._member.leader_changed(token)

    async def drain(self) -> None:
        """Send clients away, and answer what was read; see `planned_stop`."""
        self._announcer.leave()
        self._pace.hurry()
        serving = self._serving
        if serving is not None:  # else no client has been accepted
            await self._stop.run(
                serving.listeners, serving.requests, serving.pulls, self._member.gate
            )

    async def close(self) -> None:
        """Close all parts, whatever fails. Raises the first error."""
        closing, serving = Closing(), self._serving
        if serving is not None:  # a port may have been bound before another one failed
            closing.step(serving.listeners.close)
        closing.step(self._commits.close)
        closing.step(self._to_leader.close)
        if serving is not None:
            await closing.wait(serving.pulls.close)
        await closing.wait(self._feed.close)
        if serving is not None:
            await closing.wait(serving.front_reading.close)
        await closing.wait(self._announcer.closed)
        for threads in (
            self._pull_threads, self._delay_thread, self._batch_thread, self._threads,
        ):  # fmt: skip
            await closing.wait(partial(asyncio.to_thread, threads.shutdown))
        closing.end()

    def _serve_as_leader(self, call: Call) -> None:
        assert self._serving is not None
        self._serving.requests.serve_as_leader(call)

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

    def _covered_index(self) -> int:
        """Return the index up to which neither queues nor delayed messages need the log."""
        return -1 if self._serving is None else self._serving.covered_index

    def _built(self, queues: Iterable[QueueId]) -> None:
        if self._serving is not None:
            self._serving.built(queues)

    def _rebuilding(self) -> None:
        self._counters.values["queue_rebuilds"] += 1

    def _is_idle(self) -> bool:
        """Return whether nothing needs a tick soon."""
        return (
            self._is_all_decided()
            and self._proofs.is_idle
            and self._presence.is_idle
            and (self._serving is None or self._serving.is_idle)
            and not (self._leases.is_sweeping or self._locks.is_sweeping)
            and not self._figures.is_counting
            and not self._stop.has_begun
            and self._member.leader_id is not None
        )

    def _due_in_s(self) -> float:
        return math.inf if self._serving is None else self._serving.due_in_s()

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
        if self._serving is not None:
            self._serving.tick()
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
