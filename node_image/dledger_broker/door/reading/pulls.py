"""Pulls (codes 11 and 361): answered by every member, from its own queues and log.

A pull at the end of its queue is held until a message arrives, its time is up, or its client is
gone. An offset beyond the end is that of a topic which was deleted and created again, or of a log
that has lost its end. Its consumer goes on where its group continues, since the group's offset is
deleted with the topic, or else with the first message, once the member has applied everything that
was acknowledged before the pull came. The leader may have messages that a member no longer has. So
a pull of them goes on to the leader, which alone says that messages are gone.
"""

import asyncio
import itertools
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Protocol

from dledger_broker.door.between_members.door_frames import Way
from dledger_broker.door.calls.call import Call
from dledger_broker.door.calls.failures import answered, answered_after_reads
from dledger_broker.door.connections.connection import BrokerConnection
from dledger_broker.door.consumer_groups.group_clients import GroupClients
from dledger_broker.door.reading.held_pulls import HeldPulls
from dledger_broker.door.reading.proofs import Proofs
from dledger_broker.door.reading.pull_answers import EndedPulls, answer_found, answer_nothing
from dledger_broker.door.reading.pull_requests import Pull, PullRequests
from dledger_broker.door.reading.pulled_messages import LoopReads, find, find_cached
from dledger_broker.door.reading.thread_turns import ThreadTurns
from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.errors import (
    DeletedError,
    NotBuiltError,
    UnitRefusedError,
    UnprovedError,
)
from dledger_broker.queues.feed import QueueFeed
from dledger_broker.queues.reader import Found, MessageReader
from dledger_formats.rocketmq.codes import PullSysFlag, ResponseCode
from dledger_node.remoting.limits import Reason
from dledger_node.slices import Slices, in_slices

PROOF_S: Final = 2.0
"""How long a pull waits for a proof before it is held as one that waits for messages."""
_SUSPEND: Final = int(PullSysFlag.SUSPEND)


class PullsMember(Protocol):
    """The member, as far as it is used here."""

    @property
    def leader_id(self) -> str | None:
        """The leader, as far as this member knows it."""


class Pulls:
    """Answers the pulls of all connections."""

    def __init__(
        self,
        owner: LogOwner,
        clients: GroupClients,
        feed: QueueFeed,
        reader: MessageReader,
        threads: ThreadPoolExecutor,
        member: PullsMember,
        proofs: Proofs,
        pass_on: Callable[[Call], None],
        cached: LoopReads | None = None,
    ) -> None:
        """`pass_on` lets the leader answer a pull. Without `cached` threads read everything."""
        self._cached = cached
        self._thread_turns = None if cached is None else ThreadTurns(cached.turns)
        self._owner = owner
        self._requests = PullRequests(owner, clients)
        self._ends = EndedPulls(self._requests)
        self._member = member
        self._proofs = proofs
        self._pass_on = pass_on
        self._feed = feed
        self._reader = reader
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self.held = HeldPulls()
        self._tables = owner.state.tables  # by which the held pulls were last looked at
        self._waking = Slices(self._serve_woken)
        self._expiring = Slices(self._expire)
        self._cutting = Slices(self._cut_off)
        self._cut_off_until_s = -math.inf
        self._is_closed = False

    def pull(self, call: Call) -> None:
        """Take one pull. Raises FormatError and RefusedError."""
        self._serve(self._requests.read(call, self._loop.time()))

    def built(self, queues: Iterable[QueueId]) -> None:
        """Serve the pulls that wait for messages of these queues, or for what the log shows.

        Thousands may wait for one queue: some are served now, and the others in the next turns.
        """
        self.held.wake(queues)
        if self._tables is not self._owner.state.tables and self._feed.has_all:
            # A snapshot has replaced the state, also by messages that get into no queue here.
            self._tables = self._owner.state.tables
            self.held.wake(self.held.queues)
        self._waking.begin()

    def leader_changed(self) -> None:
        """Serve the pulls that waited for a leader, if there is one."""
        if self._member.leader_id is not None:
            self.held.wake_leaderless()
            self._waking.begin()

    def forget(self, channel: object) -> None:
        """Drop the pulls of a connection that is gone."""
        for pull in self.held.of_channel(channel):
            self.held.release(pull)
        if self._thread_turns is not None and isinstance(channel, BrokerConnection):
            self._thread_turns.forget(channel)

    def expire(self) -> None:
        """Answer the pulls that were held long enough: some now, the others in the next turns."""
        self._expiring.begin()

    def _expire(self, count: int) -> bool:
        answered = list(itertools.islice(self.held.expired(self._loop.time()), count))
        for pull in answered:
            self.held.release(pull)
            self._ends.late(pull, self._end_offset(pull))
        return len(answered) == count

    def cut_off(self, arrived_until_s: float) -> None:
        """Cut the connections of pulls that came up to this time: this member has no leader."""
        self._cut_off_until_s = arrived_until_s
        self._cutting.begin()

    def _cut_off(self, count: int) -> bool:
        late = self.held.channels_of_late(self._cut_off_until_s)
        cut = list(itertools.islice(late, count))
        for channel in cut:
            self.forget(channel)
            assert isinstance(channel, BrokerConnection)
            channel.cut(Reason.ISOLATED, "this member has no leader; another one may have")
        return len(cut) == count

    async def close(self) -> None:
        """Hold no further pulls, and answer all held ones, so that clients ask another member."""
        self._is_closed = True
        async for pull in in_slices(list(self.held)):
            if pull in self.held:
                self.held.release(pull)
                self._ends.closing(pull, self._end_offset(pull))

    # -- serving -----------------------------------------------------------------------------------

    def _serve_woken(self, count: int) -> bool:
        for pull in list(itertools.islice(self.held.woken, count)):
            self.held.release(pull)
            self._serve(pull)
        return bool(self.held.woken)

    def _serve(self, pull: Pull) -> None:
        """Read, hold, or correct the offset; refuse a pull if that raises."""
        answered(pull.call, partial(self._begin, pull))

    def _begin(self, pull: Pull) -> None:
        end_offset = self._end_offset(pull)
        offset, channel = pull.offset, pull.call.channel
        if offset < end_offset:
            if self._cached is not None and isinstance(channel, BrokerConnection):
                read = partial(self._read_cached, pull)
                self._cached.turns.submit(channel, partial(answered, pull.call, read))
            else:
                self._read_in_thread(pull)
        elif offset == end_offset:
            self._hold(pull)
        elif not pull.is_proved:
            self._judge(pull)
        else:
            group_offset = self._owner.state.consumer_offset(
                pull.fields.consumer_group, *pull.queue
            )
            pull.offset = min(group_offset or 0, end_offset)
            if pull.offset == end_offset:
                answer_nothing(pull, ResponseCode.PULL_OFFSET_MOVED, end_offset, end_offset)
            else:
                self._serve(pull)

    def _judge(self, pull: Pull) -> None:
        """Serve a pull once the state has all that was acknowledged before it; else hold it."""

        def decided(is_proved: bool) -> None:
            pull.is_proved = is_proved
            if is_proved:
                self._serve_again(pull)
            else:
                answered(pull.call, partial(self._hold, pull, needs_leader=True))

        self._proofs.ask(pull.call, decided, self._loop.time() + PROOF_S)

    def _below(self, pull: Pull, min_offset: int) -> None:
        """Answer a pull of messages that this member no longer has.

        Only the leader says that messages are gone; any other member asks its leader for them.
        """
        call = pull.call
        if self._owner.is_proven:
            if not pull.is_proved:
                self._judge(pull)
                return
            if pull.door_min_offset is not None:
                min_offset = min(min_offset, pull.door_min_offset)
            end_offset = self._end_offset(pull)
            moved = ResponseCode.PULL_OFFSET_MOVED
            answer_nothing(pull, moved, end_offset, min_offset, min_offset)
        elif call.is_passed_on or call.waiting is not None:
            call.turned(Way.NOT_STORED)
        elif self._member.leader_id is None:
            self._hold(pull, needs_leader=True)
        elif not self._ends.outdated(pull, self._end_offset(pull)):
            self._pass_on(pull.for_leader(min_offset, self._loop.time()))

    def _read_cached(self, pull: Pull) -> None:
        """Answer a pull from the page cache, in its turn; let a thread read what is not there."""
        assert self._cached is not None
        assert self._thread_turns is not None
        end_offset = self._end_offset(pull)
        if pull.offset >= end_offset:
            self._serve_again(pull)  # its topic was deleted meanwhile
            return
        pulled = find_cached(self._cached.reader, pull, end_offset)
        if pulled is None or pulled.found is None:
            self._thread_turns.begin(pull.call.connection, partial(self._read_in_thread, pull))
            return
        if self._answer(pull, pulled.found, pulled.min_offset, end_offset):
            pull.call.counters.values["cached_pulls"] += 1

    def _read_in_thread(self, pull: Pull) -> None:
        pull.call.channel.reads_waiting += 1
        self._loop.create_task(self._read_in_its_turn(pull))

    async def _read_in_its_turn(self, pull: Pull) -> None:
        channel = pull.call.channel
        try:
            with answered_after_reads(pull.call), self.held.being_read(pull):
                await self._read(pull)
        finally:
            if self._thread_turns is not None and isinstance(channel, BrokerConnection):
                self._thread_turns.done(channel)

    async def _read(self, pull: Pull) -> None:
        end_offset, has_all = self._end_offset(pull), self._feed.has_all
        created_index, rebuilds = self._owner.created_index(pull.queue.topic), self._feed.rebuilds
        if pull.offset >= end_offset:
            self._serve_again(pull)  # its topic was deleted meanwhile
            return
        try:
            min_offset, found = await self._loop.run_in_executor(
                self._threads, partial(find, self._reader, pull, end_offset, has_all=has_all)
            )
        except UnprovedError:
            self._wait_for_proof(pull)
            return
        except (DeletedError, NotBuiltError, UnitRefusedError) as error:
            if created_index != self._owner.created_index(pull.queue.topic):
                self._serve_again(pull)
                return
            if isinstance(error, UnitRefusedError):
                self._feed.rebuild(str(error), rebuilds)
            self._wait_for_units(pull, has_all, rebuilds)
            return
        if created_index != self._owner.created_index(pull.queue.topic):
            self._serve_again(pull)
        elif found is None:
            self._below(pull, min_offset)
        elif found.is_complete:
            self._answer(pull, found, min_offset, end_offset)
        else:
            if has_all:
                self._feed.rebuild(f"{pull.queue} has no unit {pull.offset}", rebuilds)
            self._wait_for_units(pull, has_all, rebuilds)

    def _wait_for_units(self, pull: Pull, *seen: object) -> None:
        """Hold a pull until its queue gets units, unless it got some while it was read. Before the
        read, the feed's `has_all` and `rebuilds` were as `seen`.
        """
        if pull.is_woken or (self._feed.has_all and seen != (True, self._feed.rebuilds)):
            self._serve_again(pull)
        else:
            self._hold(pull)

    def _wait_for_proof(self, pull: Pull) -> None:
        """Hold a pull until the log has been read far enough, unless it has been by now."""
        is_late = pull.deadline_s <= self._loop.time()
        if is_late or self._reader.kept.is_proof_wanted(pull.queue):
            self._hold(pull)
        else:
            self._serve_again(pull)

    def _serve_again(self, pull: Pull) -> None:
        """Serve a pull whose topic may be gone by now."""
        try:
            self._requests.check_queue(pull.queue)
        except RefusedError as error:
            pull.call.refuse(error)
        else:
            self._serve(pull)

    def _answer(self, pull: Pull, found: Found, min_offset: int, end_offset: int) -> bool:
        """Answer with what was found, or with where a consumer that was beyond the end goes on.

        If nothing was found, a pull that was held goes on waiting. Otherwise each message of a
        queue would cost a request of every group that does not want it. Returns whether the pull is
        answered.
        """
        if self._ends.outdated(pull, end_offset):
            return True
        if pull.is_beyond:
            moved = ResponseCode.PULL_OFFSET_MOVED
            answer_nothing(pull, moved, end_offset, pull.offset, min_offset)
            return True
        has_seen_all = not found.records and found.next_offset == end_offset
        if pull.was_held and has_seen_all and pull.deadline_s > self._loop.time():
            pull.offset = end_offset
            self._serve_again(pull)
            return False
        answer_found(pull, found, min_offset, end_offset)
        return True

    def _end_offset(self, pull: Pull) -> int:
        return self._owner.state.next_offset(*pull.queue)

    # -- holding -----------------------------------------------------------------------------------

    def _hold(self, pull: Pull, *, needs_leader: bool = False) -> None:
        """Hold a pull, or answer it if it must not wait."""
        if pull.call.is_passed_on:
            pull.call.turned(Way.NOT_STORED)  # the other member asks again
            return
        if self._is_closed:
            self._ends.closing(pull, self._end_offset(pull))
            return
        if not pull.fields.sys_flag & _SUSPEND or pull.deadline_s <= self._loop.time():
            self._ends.late(pull, self._end_offset(pull))
            return
        pull.was_held = True
        if not self.held.add(pull, needs_leader=needs_leader):
            pull.call.answer(ResponseCode.SYSTEM_ERROR, remark="too many pulls wait for messages")
