"""Bodies that travel together: one request where the server knows APPEND_BATCH, else one each."""

from collections.abc import Sequence
from typing import Final, Protocol

from dledger_client.append.outcomes import Acknowledged, Outcome, Refused, Unknown
from dledger_client.calls.call import Call, must_be_split
from dledger_client.errors import ClientError, GroupUnreachableError, RefusedError
from dledger_formats.protocol.requests import AppendEntryResponse, DLedgerResponseCode, Message

BODIES_MAX: Final = 128
BODY_BYTES_MAX: Final = 128 * 1024
"""No further body joins a batch that has so many bytes. A leader proposes as much at once, so
larger ones would gain nothing.
"""


class AppendStarter(Protocol):
    """Begins appends."""

    @property
    def takes_batches(self) -> bool:
        """Whether bodies may share a request, as far as it is known now."""

    def start_append(self, body: bytes, deadline_s: float | None) -> Call:
        """Begin to append one body. TypeError when it is none."""

    def start_batch(self, bodies: Sequence[bytes], deadline_s: float | None) -> Call:
        """Begin to append bodies by one request."""


class Batch:
    """Bodies on their way, until their outcomes are known."""

    __slots__ = ("_deadline_s", "_shared_call", "_starter", "bodies", "body_bytes", "calls")

    def __init__(
        self,
        starter: AppendStarter,
        bodies: Sequence[bytes],
        body_bytes: int,
        deadline_s: float | None,
    ) -> None:
        self.bodies = bodies
        self.body_bytes = body_bytes
        self._starter = starter
        self._deadline_s = deadline_s
        self._shared_call: Call | None = None
        self.calls: Sequence[Call] = ()
        """One for each body, unless one request carries them all."""
        if starter.takes_batches:
            self._shared_call = starter.start_batch(bodies, deadline_s)
        else:
            self._start_each()

    async def outcomes(self, first_number: int) -> list[Outcome] | None:
        """What became of the bodies, the first of which has this number, by the request that
        carries them all; None when each has a call of its own, now at the latest.
        """
        if self._shared_call is None:
            return None
        answer = await self._shared_call.answer
        if must_be_split(self._shared_call.kind, answer):
            self._shared_call = None
            self._start_each()
            return None
        return _outcomes_of_all(first_number, len(self.bodies), self._shared_call, answer)

    def cancel(self) -> None:
        """Wait for no answer any more; what was not sent will not be."""
        for call in self.calls if self._shared_call is None else [self._shared_call]:
            if not call.answer.done():
                call.cancel()

    def _start_each(self) -> None:
        start, deadline_s = self._starter.start_append, self._deadline_s
        self.calls = [start(body, deadline_s) for body in self.bodies]


def body_type_error(value: object) -> TypeError:
    """The error for what is given as a body and is none."""
    return TypeError(f"a body must be bytes, not {type(value).__name__}")


def _outcomes_of_all(
    first_number: int, count: int, call: Call, answer: Message | ClientError
) -> list[Outcome]:
    if isinstance(answer, AppendEntryResponse):
        term, attempts = answer.term, call.attempts
        return [
            Acknowledged(number=number, index=index, term=term, attempts=attempts)
            for number, index in zip(
                range(first_number, first_number + count),
                range(answer.index, answer.index + count),
                strict=True,
            )
        ]
    return [
        outcome_of(number, call, answer) for number in range(first_number, first_number + count)
    ]


def outcome_of(number: int, call: Call, answer: Message | ClientError) -> Outcome:
    """Put the end of an append into one of the three outcomes."""
    if isinstance(answer, AppendEntryResponse):
        return Acknowledged(
            number=number, index=answer.index, term=answer.term, attempts=call.attempts
        )
    if isinstance(answer, RefusedError):
        return Refused(number=number, code=answer.code, reason=str(answer))
    if isinstance(answer, GroupUnreachableError):
        code = DLedgerResponseCode.METADATA_ERROR
        return Refused(number=number, code=code, reason=str(answer))
    return Unknown(number=number, reason=str(answer))
