"""Pulls (codes 11 and 361): answered by every member, from its own queues and log.

A pull at the end of its queue is held until a message arrives, its time is up, or its client is
gone. An offset behind the end is corrected once the member has applied everything that was
acknowledged before the pull came. What a member no longer has, the leader may have: its pull goes
on to the leader, which alone says that messages are gone.
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
from dledger_broker.door.connections.connection import BrokerConnection
from dledger_broker.door.consumer_groups.group_clients import GroupClients
from dledger_broker.door.reading.proofs import Proofs
from dledger_broker.door.reading.pull_requests import Pull, PullRequests
from dledger_broker.door.reading.pulled_messages import LoopReads, find, find_cached, is_short
from dledger_broker.errors import QueueFilesError
from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.errors import (
    DeletedError,
    NotBuiltError,
    UnitRefusedError,
    UnprovedError,
    UnreadableError,
)
from dledger_broker.queues.feed import QueueFeed
from dledger_broker.queues.reader import Found, MessageReader
from dledger_formats.rocketmq.codes import PullSysFlag, ResponseCode
from dledger_formats.rocketmq.pulls import PullAnswerFields
from dledger_node.errors import StoreError
from dledger_node.remoting.limits import Reason
from dledger_node.slices import Slices, in_slices

HELD_MAX: Final = 20_000
HELD_OF_CLIENT_MAX: Final = 4096
PROOF_S: Final = 2.0
"""How long a pull waits for a proof before it is held as one that waits for messages."""
_SUSPEND: Final = int(PullSysFlag.SUSPEND)


class PullsMember(Protocol):
    """The member, as far as it is asked here."""

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
        self._owner = owner
        self._requests = PullRequests(owner, clients)
        self._member = member
        self._proofs = proofs
        self._pass_on = pass_on
        self._feed = feed
        self._reader = reader
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._held: dict[QueueId, dict[Pull, None]] = {}
        self._held_by_line: dict[object, dict[Pull, None]] = {}
        self._woken: dict[Pull, None] = {}
        """Held pulls that are to be served."""
        self.held_count = 0
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
        for queue in queues:
            self._woken.update(self._held.get(queue, {}))
        self._waking.begin()

    def forget(self, line: object) -> None:
        """Drop the pulls of a connection that is gone."""
        for pull in list(self._held_by_line.get(line, ())):
            self._release(pull)

    def expire(self) -> None:
        """Answer the pulls that were held long enough: some now, the others in the next turns."""
        self._expiring.begin()

    def _expire(self, count: int) -> bool:
        now_s = self._loop.time()
        every = itertools.chain.from_iterable(self._held.values())
        expired = (pull for pull in every if pull.deadline_s <= now_s)
        answered = list(itertools.islice(expired, count))
        for pull in answered:
            self._release(pull)
            self._answer_nothing(pull, ResponseCode.PULL_NOT_FOUND)
        return len(answered) == count

    def cut_off(self, arrived_until_s: float) -> None:
        """Cut the connections of the pulls that came until then: this member has no leader."""
        self._cut_off_until_s = arrived_until_s
        self._cutting.begin()

    def _cut_off(self, count: int) -> bool:
        until_s, lines = self._cut_off_until_s, self._held_by_line.items()
        late = (line for line, pulls in lines if any(p.call.arrived_s <= until_s for p in pulls))
        cut = list(itertools.islice(late, count))
        for line in cut:
            self.forget(line)
            assert isinstance(line, BrokerConnection)
            line.cut(Reason.ISOLATED, "this member has no leader; another one may have")
        return len(cut) == count

    async def close(self) -> None:
        """Hold no further pulls, and answer all held ones, so that clients ask another member."""
        self._is_closed = True
        held = [pull for of_queue in self._held.values() for pull in of_queue]
        async for pull in in_slices(held):
            if pull in self._held.get(pull.queue, ()):
                self._release(pull)
                self._answer_nothing(pull, ResponseCode.PULL_RETRY_IMMEDIATELY)

    # -- serving -----------------------------------------------------------------------------------

    def _serve_woken(self, count: int) -> bool:
        for pull in list(itertools.islice(self._woken, count)):
            self._release(pull)
            self._serve(pull)
        return bool(self._woken)

    def _serve(self, pull: Pull) -> None:
        """Read, hold, or correct the offset."""
        end_offset = self._owner.state.next_offset(*pull.queue)
        offset, line = pull.fields.queue_offset, pull.call.line
        if offset < end_offset:
            if self._cached is not None and isinstance(line, BrokerConnection) and is_short(pull):
                self._cached.turns.submit(line, partial(self._read_cached, pull))
            else:
                self._read_in_thread(pull, end_offset)
        elif offset == end_offset:
            self._hold(pull)
        elif pull.is_proved:
            self._answer_nothing(pull, ResponseCode.PULL_OFFSET_MOVED, end_offset)
        else:
            self._judge(pull)

    def _judge(self, pull: Pull) -> None:
        """Go on with a pull once the state has all that was acknowledged before it, or cannot."""

        def decided(is_proved: bool) -> None:
            pull.is_proved = is_proved
            if is_proved:
                self._serve_again(pull)
            else:
                self._hold(pull)

        self._proofs.ask(pull.call, decided, self._loop.time() + PROOF_S)

    def _below(self, pull: Pull, min_offset: int) -> None:
        """Answer a pull of messages that this member no longer has.

        What its leader may still have, no other member calls gone.
        """
        call = pull.call
        if self._owner.is_proven:
            if not pull.is_proved:
                self._judge(pull)
                return
            if pull.door_min_offset is not None:
                min_offset = min(min_offset, pull.door_min_offset)
            self._answer_nothing(pull, ResponseCode.PULL_OFFSET_MOVED, min_offset, min_offset)
        elif call.is_passed_on or call.waiting is not None:
            call.turned(Way.NOT_STORED)
        elif self._member.leader_id is None:
            self._hold(pull)
        else:
            self._pass_on(pull.for_leader(min_offset))

    def _read_cached(self, pull: Pull) -> None:
        """Answer a pull from the page cache, in its turn. What is not there a thread reads."""
        assert self._cached is not None
        end_offset = self._owner.state.next_offset(*pull.queue)
        if pull.fields.queue_offset >= end_offset:
            self._serve_again(pull)  # its topic was deleted meanwhile
            return
        pulled = find_cached(self._cached.reader, pull, end_offset)
        if pulled is None or pulled.found is None:
            self._read_in_thread(pull, end_offset)
            return
        pull.call.counters.values["cached_pulls"] += 1
        self._answer(pull, pulled.found, pulled.min_offset, end_offset)

    def _read_in_thread(self, pull: Pull, end_offset: int) -> None:
        pull.call.line.reads_waiting += 1
        self._loop.create_task(self._read(pull, end_offset, self._feed.has_all))

    async def _read(self, pull: Pull, end_offset: int, has_all: bool) -> None:
        line, built_index = pull.call.line, self._feed.built_index
        rebuilds, created_index = self._feed.rebuilds, self._owner.created_index(pull.queue.topic)
        try:
            min_offset, found = await self._loop.run_in_executor(
                self._threads, partial(find, self._reader, pull, end_offset, has_all=has_all)
            )
        except UnprovedError:
            self._wait_for_proof(pull)
            return
        except (DeletedError, NotBuiltError):
            self._hold(pull)  # the units of a deleted topic will go, and those that lack will come
            return
        except UnitRefusedError as error:
            if created_index != self._owner.created_index(pull.queue.topic):
                self._serve_again(pull)
                return
            self._feed.rebuild(str(error), rebuilds)
            self._hold(pull)
            return
        except (UnreadableError, QueueFilesError, StoreError, IndexError, OSError) as error:
            pull.call.answer(ResponseCode.SYSTEM_ERROR, remark=str(error))
            return
        finally:
            line.reads_waiting -= 1
            line.go_on()
        if created_index != self._owner.created_index(pull.queue.topic):
            self._serve_again(pull)
        elif found is None:
            self._below(pull, min_offset)
        elif found.is_complete:
            self._answer(pull, found, min_offset, end_offset)
        elif has_all:
            self._feed.rebuild(f"{pull.queue} has no unit {pull.fields.queue_offset}", rebuilds)
            self._hold(pull)
        elif self._feed.built_index != built_index:
            self._serve(pull)
        else:
            self._hold(pull)

    def _wait_for_proof(self, pull: Pull) -> None:
        """Hold a pull until the log was read far enough; that may be so by now."""
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

    def _answer(self, pull: Pull, found: Found, min_offset: int, end_offset: int) -> None:
        fields = PullAnswerFields(
            suggest_which_broker_id=0,
            next_begin_offset=found.next_offset,
            min_offset=min_offset,
            max_offset=end_offset,
        )
        if not found.records:
            pull.call.answer(
                ResponseCode.PULL_RETRY_IMMEDIATELY, fields, remark="NO_MATCHED_MESSAGE"
            )
            return
        values = pull.call.counters.values
        values["messages_pulled"] += len(found.records)
        values["bytes_pulled"] += sum(map(len, found.records))
        pull.call.answer(ResponseCode.SUCCESS, fields, remark="FOUND", body=found.records)

    def _answer_nothing(
        self, pull: Pull, code: ResponseCode, next_offset: int | None = None, min_offset: int = 0
    ) -> None:
        offset = pull.fields.queue_offset if next_offset is None else next_offset
        end_offset = self._owner.state.next_offset(*pull.queue)
        fields = PullAnswerFields(
            suggest_which_broker_id=0,
            next_begin_offset=offset,
            min_offset=min_offset,
            max_offset=end_offset,
        )
        pull.call.answer(code, fields, remark=code.name)

    # -- holding -----------------------------------------------------------------------------------

    def _hold(self, pull: Pull) -> None:
        """Hold a pull, or answer it if it must not wait."""
        if pull.call.is_passed_on:
            pull.call.turned(Way.NOT_STORED)  # the other member asks again
            return
        if self._is_closed:
            self._answer_nothing(pull, ResponseCode.PULL_RETRY_IMMEDIATELY)
            return
        if not pull.fields.sys_flag & _SUSPEND or pull.deadline_s <= self._loop.time():
            self._answer_nothing(pull, ResponseCode.PULL_NOT_FOUND)
            return
        of_line = self._held_by_line.setdefault(pull.call.line, {})
        if self.held_count >= HELD_MAX or len(of_line) >= HELD_OF_CLIENT_MAX:
            if not of_line:
                del self._held_by_line[pull.call.line]
            pull.call.answer(ResponseCode.SYSTEM_ERROR, remark="too many pulls wait for messages")
            return
        self.held_count += 1
        of_line[pull] = None
        self._held.setdefault(pull.queue, {})[pull] = None

    def _release(self, pull: Pull) -> None:
        """Hold a pull no longer."""
        self.held_count -= 1
        self._woken.pop(pull, None)
        table: dict[object, dict[Pull, None]]
        for table, key in ((self._held, pull.queue), (self._held_by_line, pull.call.line)):  # type: ignore[assignment]
            del table[key][pull]
            if not table[key]:
                del table[key]
