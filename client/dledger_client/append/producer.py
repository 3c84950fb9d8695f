"""Idempotent appends: the producer assigns sequences, by which the group recognizes duplicates.

A producer registers before its first append. It registers again if the group has forgotten it, or
if the sequences of a whole window had no effect, so that the next one would be too new for the
group. From the oldest unresolved sequence to the newest there are at most WINDOW sequences, as many
as the group remembers; further appends wait here.
"""

import asyncio
from typing import Final, TypeAlias

from dledger_client.calls.call import APPEND_IDEMPOTENT, REGISTER, Call
from dledger_client.calls.call_queue import CallQueue
from dledger_client.calls.dispatcher import EXPIRY_INTERVAL_S, Dispatcher
from dledger_client.errors import ClientError, RefusedError
from dledger_client.tasks import Spawn
from dledger_formats.protocol.append_batch import AppendBatchRequest
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.producers import (
    IdempotentAppendRequest,
    IdempotentBatchRequest,
    RegisterProducerRequest,
    RegisterProducerResponse,
)
from dledger_formats.protocol.requests import AppendEntryRequest, AppendEntryResponse, Message
from dledger_formats.protocol.sequences import Sequences

Numbered: TypeAlias = IdempotentAppendRequest | IdempotentBatchRequest
"""A request with a sequence, or with one for each of its bodies."""

_PERMANENT: Final = (DLedgerResponseCode.UNSUPPORTED, DLedgerResponseCode.UNKNOWN_GROUP)


class Producer:
    """Assigns sequences to appends in the order in which they start, and dispatches them."""

    def __init__(self, group: str, dispatcher: Dispatcher, spawn: Spawn) -> None:
        self._group = group
        self._dispatcher = dispatcher
        self._spawn = spawn
        self._loop = asyncio.get_running_loop()
        self._sequences: Sequences | None = None
        self._waiting = CallQueue()
        self._registration: asyncio.Task[None] | None = None
        self._registering: Call | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_sending = False
        self._is_closed = False
        self._is_resumed = False
        # Sequences up to here may have been sent by an earlier client.
        self._sent_before = 0

    def resume(self, producer_id: int, acknowledged: int, sent: int) -> None:
        """Continue a registration that outlives its clients, and never register again.

        The sequences up to `acknowledged` are in the log, and those up to `sent` may be. Under
        another registration, their duplicates would not be recognized.
        """
        self._is_resumed = True
        self._sequences = Sequences(producer_id, acknowledged)
        self._sent_before = sent

    def start(self, call: Call) -> None:
        """Send an append as an idempotent append as soon as sequences are available.

        The call's request must be an AppendEntryRequest or an AppendBatchRequest.
        """
        call.sequencer = self
        self._waiting.append(call)
        self._send_waiting()

    def reregister(self, call: Call) -> None:
        """Resend a call that had no effect under a new registration."""
        if self._is_resumed:
            self._dispatcher.end(call, call.refusal())
            return
        self._forget(call)
        call.last_code = None  # the code is not about the next registration
        self._waiting.appendleft(call)
        self._send_waiting()

    def split(self, call: Call) -> None:
        """Send the bodies of a refused batch one by one, each with the sequence that it has.

        An earlier copy of the batch may be in the log in whole or in part. The owner of an ordered
        batch sends the parts.
        """
        batch = call.request
        assert isinstance(batch, IdempotentBatchRequest)
        parts = [
            Call(
                kind=APPEND_IDEMPOTENT,
                request=IdempotentAppendRequest(
                    group=self._group,
                    remote_id=batch.remote_id,
                    body=body,
                    producer=batch.producer,
                    sequence=sequence,
                ),
                is_repeatable=True,
                began_s=call.began_s,
                deadline_s=call.deadline_s,
                handler=self._dispatcher,
                answer=self._loop.create_future(),
                attempts=call.attempts,
                may_have_happened=call.may_have_happened,
                sequencer=self,
            )
            for sequence, body in enumerate(batch.bodies, batch.sequence)
        ]
        call.parts = parts
        if not call.is_ordered:
            for part in parts:
                self.send_part(part)

    def send_part(self, part: Call) -> None:
        """Send a part of a batch that was split."""
        self._dispatcher.record_start(part)
        self._dispatcher.forward(part)

    def ended(self, call: Call) -> None:
        """Resolve the sequences of a call that has ended; a batch's parts resolve their own."""
        request, sequences = call.request, self._sequences
        if (
            sequences is not None
            and isinstance(request, Numbered)
            and request.producer == sequences.producer_id
            and not call.parts
        ):
            if call.last_code is DLedgerResponseCode.UNKNOWN_PRODUCER and not self._is_resumed:
                self._forget(call)
            else:
                acknowledged = _is_acknowledged(call)
                sequences.resolve(request.sequence, call.entry_count, acknowledged=acknowledged)
        self._send_waiting()

    def close(self) -> list[Call]:
        """Stop assigning sequences and return the waiting calls."""
        self._is_closed = True
        if self._registration is not None:
            self._registration.cancel()
        if self._timer is not None:
            self._timer.cancel()
        return self._waiting.take_all()

    def _forget(self, call: Call) -> None:
        sequences, request = self._sequences, call.request
        assert isinstance(request, Numbered)
        if sequences is not None and sequences.producer_id == request.producer:
            self._sequences = None

    def _send_waiting(self) -> None:
        if self._is_sending:
            return
        if self._is_closed:
            self._end_late()
            return
        self._is_sending = True  # guards against recursion: a call may end during _send
        try:
            while self._waiting:
                count = self._waiting[0].entry_count
                if self._sequences is not None and self._sequences.is_exhausted(count):
                    if self._is_resumed:
                        self._end_exhausted()
                        break
                    self._sequences = None
                if self._sequences is None:
                    if self._registration is None:
                        self._registration = self._spawn(self._register())
                    break
                if not self._sequences.has_room(count):
                    break
                self._send(self._waiting.popleft(), self._sequences)
        finally:
            self._is_sending = False
        if self._waiting and self._timer is None:
            self._timer = self._loop.call_later(EXPIRY_INTERVAL_S, self._expire)

    def _end_late(self) -> None:
        """End calls that came, or were to be sent again, after this producer was closed."""
        for call in self._waiting.take_all():
            self._dispatcher.forward(call)

    def _send(self, call: Call, sequences: Sequences) -> None:
        if not call.is_over(self._loop.time()):  # else the dispatcher ends it
            call.request = self._numbered(call, sequences)
            call.may_have_happened |= call.request.sequence <= self._sent_before
        self._dispatcher.forward(call)

    def _numbered(self, call: Call, sequences: Sequences) -> Numbered:
        request, first = call.request, sequences.take(call.entry_count)
        if isinstance(request, AppendBatchRequest | IdempotentBatchRequest):
            return IdempotentBatchRequest(
                group=self._group,
                remote_id=request.remote_id,
                bodies=request.bodies,
                producer=sequences.producer_id,
                sequence=first,
            )
        assert isinstance(request, AppendEntryRequest | IdempotentAppendRequest)
        return IdempotentAppendRequest(
            group=self._group,
            remote_id=request.remote_id,
            body=request.body,
            producer=sequences.producer_id,
            sequence=first,
        )

    async def _register(self) -> None:
        if not self._waiting:  # all waiting calls have ended in the meantime
            self._registration = None
            return
        now_s, oldest = self._loop.time(), self._waiting[0]
        call = Call(
            kind=REGISTER,
            request=RegisterProducerRequest(group=self._group),
            is_repeatable=True,
            began_s=now_s,
            deadline_s=oldest.deadline_s,
            handler=self._dispatcher,
            answer=self._loop.create_future(),
        )
        self._registering = call
        self._dispatcher.submit(call)
        answer = await call.answer
        self._registration = self._registering = None
        if isinstance(answer, RegisterProducerResponse):
            self._sequences = Sequences(answer.producer)
        else:
            self._end_waiting(answer, oldest)
        self._send_waiting()

    def _end_waiting(self, answer: Message | ClientError, oldest: Call) -> None:
        """End waiting calls after a failed registration.

        A permanent error ends all of them; any other error ends only `oldest`, whose deadline the
        registration had, if that still waits.
        """
        assert isinstance(answer, ClientError)
        is_permanent = isinstance(answer, RefusedError) and answer.code in _PERMANENT
        if isinstance(answer, RefusedError):
            answer = unsupported(self._group, answer)
        for call in self._waiting.take_if(lambda call: is_permanent or call is oldest):
            self._dispatcher.end(call, answer)

    def _end_exhausted(self) -> None:
        """End the waiting calls of a resumed registration that can take no further sequence."""
        message = "a whole window of earlier appends of this producer had no effect"
        for call in self._waiting.take_all():
            self._dispatcher.end(call, RefusedError(DLedgerResponseCode.SEQUENCE_TOO_NEW, message))

    def _expire(self) -> None:
        """End waiting calls that have expired or were cancelled."""
        self._timer = None
        now_s = self._loop.time()
        for call in self._waiting.take_if(lambda call: call.is_over(now_s)):
            if self._registering is not None and not call.problem:
                call.problem = self._registering.problem  # why the registration took too long
            self._dispatcher.forward(call)
        self._send_waiting()


def unsupported(group: str, error: RefusedError) -> RefusedError:
    """Explain a refused registration if the servers do not know the request."""
    if error.code is not DLedgerResponseCode.UNSUPPORTED:
        return error
    return RefusedError(
        error.code,
        f"the servers of group {group} do not support idempotent appends (Java servers never do): "
        f"append without `idempotent` ({error})",
    )


def _is_acknowledged(call: Call) -> bool:
    answer = call.answer
    return (
        answer.done()
        and not answer.cancelled()
        and isinstance(answer.result(), AppendEntryResponse)
    )
