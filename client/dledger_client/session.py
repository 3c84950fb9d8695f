"""The state of an open client: how a request starts and ends."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Final

import msgspec

from dledger_client.append.batches import BODIES_MAX, body_type_error
from dledger_client.append.producer import Producer, unsupported
from dledger_client.calls.call import (
    APPEND,
    APPEND_BATCH,
    APPEND_IDEMPOTENT,
    APPEND_IDEMPOTENT_BATCH,
    GET,
    READ_RANGE,
    REGISTER,
    Call,
    CallKind,
)
from dledger_client.calls.dispatcher import Dispatcher
from dledger_client.calls.member_reads import MemberReads, ReadFrom
from dledger_client.calls.slots import CallSlots
from dledger_client.cluster.arguments import check_seconds
from dledger_client.cluster.members import Timing
from dledger_client.errors import ClientError, RefusedError
from dledger_client.same_loop import check_loop
from dledger_client.tasks import TaskScope
from dledger_formats.log import disk
from dledger_formats.protocol.append_batch import AppendBatchRequest
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.producers import RegisterProducerRequest, RegisterProducerResponse
from dledger_formats.protocol.read_range import NO_LAST_INDEX, ReadRangeRequest
from dledger_formats.protocol.requests import (
    AppendEntryRequest,
    Consistency,
    GetEntriesRequest,
    Message,
    ReadRequest,
)

CALLS_MAX: Final = 8192
"""Maximum number of concurrent single requests; further requests wait."""
BATCHES_MAX: Final = 4
"""Maximum number of concurrent `append_batch` calls; further calls wait."""


class Session:
    """Starts calls and limits how many run concurrently."""

    def __init__(
        self,
        group: str,
        dispatcher: Dispatcher,
        tasks: TaskScope,
        *,
        timing: Timing,
        at_least_once: bool,
        idempotent: bool,
        read_from: ReadFrom,
        consistency: Consistency,
        random: Callable[[], float],
    ) -> None:
        self.dispatcher = dispatcher
        self.tasks = tasks
        self.batch_slots = asyncio.Semaphore(BATCHES_MAX)
        self.has_register = False
        """Whether the group is known to run the register state machine."""
        self.waits_for = ""
        """What an administrative request waits for; empty for nothing."""
        self.group = group
        self.timing = timing
        self._reads: MemberReads | None = None
        """The sender of reads to any member; None if the leader gets the reads."""
        if read_from is not ReadFrom.LEADER:
            self._reads = MemberReads(dispatcher, read_from, tasks.spawn, random)
        stays = not dispatcher.members.follow_leader  # with a server that may be a follower
        anywhere = stays or self._reads is not None or consistency is Consistency.STALE
        self._consistency = consistency if anywhere else None
        self._at_least_once = at_least_once
        self._producer = Producer(group, dispatcher, tasks.spawn) if idempotent else None
        self._call_slots = CallSlots(CALLS_MAX, group)
        self._loop = asyncio.get_running_loop()

    def check_loop(self) -> None:
        """Raise RuntimeError unless the caller runs in the client's event loop."""
        check_loop(self._loop)

    @property
    def takes_batches(self) -> bool:
        """Whether several appends may share a request; False while no leader is known."""
        leader = self.dispatcher.leader
        return leader is not None and leader.takes_batches and leader.refused_bodies is None

    @property
    def ordered_bodies_max(self) -> int:
        """How many bodies may share a request that is the only one in flight.

        A member refuses a batch with more bodies than it lets wait, so smaller ones follow.
        """
        leader = self.dispatcher.leader
        if leader is None or not leader.takes_batches:
            return 1
        refused = leader.refused_bodies
        return BODIES_MAX if refused is None else max(1, refused // 2)

    @property
    def trouble(self) -> str | None:
        """Why a request is waiting; None if none waits longer than usual."""
        dispatcher, call = self.dispatcher, self.dispatcher.stuck_call
        if call is not None:
            return call.problem if dispatcher.leader is not None else self._problems
        if dispatcher.leader is not None and dispatcher.leader.is_stalled:
            return f"{dispatcher.leader} does not answer"
        is_choosing = self._reads is not None and self._reads.any_waits
        if is_choosing or dispatcher.members.is_unanswered:
            return self._problems
        return self.waits_for or None

    @property
    def _problems(self) -> str:
        return "; ".join(self.dispatcher.members.problems)

    def start_append(self, body: bytes, deadline_s: float | None = None) -> Call:
        """Start to append one body. Refuse a body that is too large for an entry at once.

        Raises TypeError if the body is not bytes, and TypeError or ValueError if the deadline is
        invalid.
        """
        if not isinstance(body, bytes):
            raise body_type_error(body)
        self.check_loop()
        leader = self.dispatcher.leader
        # Usually the call goes to this leader, and then its request need not be copied.
        remote_id = None if leader is None else leader.member_id
        now_s = self._loop.time()
        call = Call(
            kind=APPEND if self._producer is None else APPEND_IDEMPOTENT,
            request=AppendEntryRequest(group=self.group, remote_id=remote_id, body=body),
            is_repeatable=self._at_least_once or self._producer is not None,
            began_s=now_s,
            deadline_s=now_s + self._timeout_s(deadline_s),
            handler=self.dispatcher,
            answer=self._loop.create_future(),
        )
        if len(body) > disk.BODY_SIZE_MAX:
            _refuse_large(call, len(body))
        elif self._producer is None:
            self.dispatcher.submit(call)
        else:
            self.dispatcher.record_start(call)
            self._producer.start(call)
        return call

    def start_batch(self, bodies: Sequence[bytes], deadline_s: float | None = None) -> Call:
        """Start to append several bodies with one request.

        A body that is too large for an entry must be alone in its batch; it is refused at once.
        """
        request = AppendBatchRequest(group=self.group, bodies=bodies)
        producer = self._producer
        repeatable = self._at_least_once or producer is not None
        kind = APPEND_BATCH if producer is None else APPEND_IDEMPOTENT_BATCH
        call = self._call(kind, request, deadline_s, is_repeatable=repeatable)
        call.entry_count = len(bodies)
        longest = max(map(len, bodies))
        if longest > disk.BODY_SIZE_MAX:
            _refuse_large(call, longest)
        elif producer is None:
            self.dispatcher.submit(call)
        else:
            self.dispatcher.record_start(call)
            producer.start(call)
        return call

    def start_ordered_batch(self, bodies: Sequence[bytes], deadline_s: float | None = None) -> Call:
        """Start to append several bodies with one request, whose parts the caller starts."""
        call = self.start_batch(bodies, deadline_s)
        call.is_ordered = True  # before any response can arrive
        return call

    def start_part(self, part: Call, deadline_s: float | None) -> None:
        """Send a part of an ordered batch that was split; its time begins now."""
        assert self._producer is not None
        part.began_s = self._loop.time()
        part.deadline_s = part.began_s + self._timeout_s(deadline_s)
        self._producer.send_part(part)

    def drop_parts(self, parts: Iterable[Call]) -> None:
        """Give up parts of an ordered batch that were not started."""
        for part in parts:
            assert self._producer is not None
            part.answer.cancel()
            self._producer.ended(part)

    async def register_producer(self, deadline_s: float | None) -> int:
        """Register a producer and return its id. Raises the ClientError that ended the call."""
        try:
            answer = await self.ask(REGISTER, RegisterProducerRequest(group=self.group), deadline_s)
        except RefusedError as error:
            raise unsupported(self.group, error) from error
        assert isinstance(answer, RegisterProducerResponse)
        return answer.producer

    def resume_producer(self, producer_id: int, acknowledged: int, sent: int) -> None:
        """Number all further appends as the next ones of this registration.

        Raises ValueError unless the client is idempotent.
        """
        if self._producer is None:
            raise ValueError("only a client with idempotent=True numbers its appends")
        self._producer.resume(producer_id, acknowledged, sent)

    def close(self) -> None:
        """End every call: the outcome of a sent call is unknown, the others had no effect."""
        waiting = [] if self._producer is None else self._producer.close()
        self.dispatcher.close()
        if self._reads is not None:
            self._reads.close()
        for call in waiting:
            self.dispatcher.forward(call)

    async def end(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End every call, every connection and every task, with the error of the client's block."""
        self.close()
        try:
            await self.dispatcher.members.close()
        finally:
            await self.tasks.__aexit__(kind, error, traceback)

    def start_get(self, begin_index: int, max_size: int, deadline_s: float | None) -> Call:
        """Start to read up to `max_size` bytes of entries, or one entry if `max_size` is 0."""
        request = GetEntriesRequest(group=self.group, begin_index=begin_index, max_size=max_size)
        return self._start_read(GET, request, deadline_s)

    def start_read_range(
        self, begin_index: int, last_index: int | None, max_size: int, deadline_s: float | None
    ) -> Call:
        """Start to read up to `max_size` bytes of stored entries."""
        request = ReadRangeRequest(
            group=self.group,
            begin_index=begin_index,
            last_index=NO_LAST_INDEX if last_index is None else last_index,
            max_size=max_size,
        )
        return self._start_read(READ_RANGE, request, deadline_s)

    async def append(self, body: bytes, deadline_s: float | None) -> Message:
        """Append one entry and return the response. Raises the ClientError that ended the call."""
        self.check_loop()
        left_s = await self._call_slots.take(self._timeout_s(deadline_s))
        try:
            call = self.start_append(body, left_s)
        except (TypeError, ValueError):
            self._call_slots.release()
            raise
        return await self._finish(call)

    async def ask(
        self,
        kind: CallKind,
        request: Message,
        deadline_s: float | None,
        *,
        is_repeatable: bool = True,
        answer_s: float = 0.0,
    ) -> Message:
        """Send one request and return its response. Raises the ClientError that ended the call.

        `answer_s` is how long the leader may delay its response.
        """
        self.check_loop()
        left_s = await self._call_slots.take(self._timeout_s(deadline_s))
        call = self._call(kind, request, left_s, is_repeatable=is_repeatable)
        call.answer_s = answer_s
        self._submit(call)
        return await self._finish(call)

    async def _finish(self, call: Call) -> Message:
        """Await the response to a call that holds a slot.

        The call keeps its slot until it has ended, even if its caller is cancelled: this bounds
        the number of calls at CALLS_MAX.
        """
        if call.answer.done():
            self._call_slots.release()
        else:
            call.on_end = self._call_slots.release
        try:
            answer = await call.answer
        except asyncio.CancelledError as cancelled:
            call.cancel()
            if call.kind.appends and call.attempts:
                cancelled.add_note(
                    "the append was cancelled after it was sent: it may be in the log"
                )
            raise
        if isinstance(answer, ClientError):
            raise answer
        return answer

    def _start_read(self, kind: CallKind, request: Message, deadline_s: float | None) -> Call:
        call = self._call(kind, request, deadline_s, is_repeatable=True)
        self._submit(call)
        return call

    def _submit(self, call: Call) -> None:
        """Send a call to the leader, or a read to the member that gets the reads."""
        request = call.request
        if isinstance(request, ReadRequest) and self._consistency is not None:
            call.request = msgspec.structs.replace(request, consistency=self._consistency)
        if isinstance(request, ReadRequest) and self._reads is not None:
            self._reads.submit(call)
        else:
            self.dispatcher.submit(call)

    def _timeout_s(self, deadline_s: float | None) -> float:
        if deadline_s is None:
            return self.timing.deadline_s
        return check_seconds(deadline_s, "deadline_s")

    def _call(
        self, kind: CallKind, request: Message, deadline_s: float | None, *, is_repeatable: bool
    ) -> Call:
        self.check_loop()
        now_s = self._loop.time()
        return Call(
            kind=kind,
            request=request,
            is_repeatable=is_repeatable,
            began_s=now_s,
            deadline_s=now_s + self._timeout_s(deadline_s),
            handler=self.dispatcher,
            answer=self._loop.create_future(),
        )


def _refuse_large(call: Call, body_bytes: int) -> None:
    message = f"a body of {body_bytes} bytes is too large; at most {disk.BODY_SIZE_MAX} are allowed"
    call.answer.set_result(RefusedError(DLedgerResponseCode.UNEXPECTED_ARGUMENT, message))
