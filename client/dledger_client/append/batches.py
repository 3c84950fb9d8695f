"""Batches of bodies: one APPEND_BATCH request if the server supports it, else one request each."""

from collections.abc import Collection, Sequence
from typing import Final, Protocol

from dledger_client.append.outcomes import Acknowledged, Outcome, Refused, Unknown
from dledger_client.calls.call import Call, must_be_split
from dledger_client.errors import ClientError, GroupUnreachableError, RefusedError
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.requests import AppendEntryResponse, Message

BODIES_MAX: Final = 128
BODY_BYTES_MAX: Final = 128 * 1024
"""A batch of this size takes no further body. A leader proposes this much at once, so larger
batches would gain nothing.
"""


class AppendStarter(Protocol):
    """Starts appends; implemented by Session."""

    def check_loop(self) -> None:
        """Raise RuntimeError unless the caller runs in the client's event loop."""

    @property
    def takes_batches(self) -> bool:
        """Whether several bodies may share a request at the moment."""

    def start_append(self, body: bytes, deadline_s: float | None) -> Call:
        """Start to append one body. Raises TypeError if the body is not bytes."""

    def start_batch(self, bodies: Sequence[bytes], deadline_s: float | None) -> Call:
        """Start to append bodies with one request."""


class Batch:
    """Bodies whose append has started, until their outcomes are known."""

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
        """One call for each body; empty while the bodies share a call."""
        if starter.takes_batches:
            self._shared_call = starter.start_batch(bodies, deadline_s)
        else:
            self._start_each()

    async def outcomes(self, first_number: int) -> list[Outcome] | None:
        """Return the outcomes of bodies that share a call, numbered from `first_number`.

        Returns None if each body has its own call, or gets one now because the server refused the
        batch; `calls` then holds them.
        """
        if self._shared_call is None:
            return None
        answer = await self._shared_call.answer
        if must_be_split(self._shared_call, answer):
            self.calls, self._shared_call = self._shared_call.parts, None
            if not self.calls:
                self._start_each()
            return None
        return outcomes_of_all(first_number, len(self.bodies), self._shared_call, answer)

    def cancel(self) -> None:
        """Cancel all calls that have not ended; bodies that were not sent yet are dropped."""
        shared = self._shared_call
        for call in self.calls if shared is None else [shared, *shared.parts]:
            if not call.answer.done():
                call.cancel()

    def _start_each(self) -> None:
        start, deadline_s = self._starter.start_append, self._deadline_s
        self.calls = [start(body, deadline_s) for body in self.bodies]


def check_batch(bodies: object) -> None:
    """Raise TypeError unless this is a collection of bytes whose size is known."""
    if not isinstance(bodies, Collection):
        raise TypeError(f"bodies must be a sequence, not {type(bodies).__name__}")
    for body in bodies:
        if not isinstance(body, bytes):
            raise body_type_error(body)


def check_batch_size(bodies: Collection[bytes], count_max: int, bytes_max: int) -> None:
    """Check a batch, and raise ValueError if it has too many bodies or bytes."""
    check_batch(bodies)
    size_bytes = sum(map(len, bodies))
    if len(bodies) > count_max or size_bytes > bytes_max:
        raise ValueError(
            f"a batch of {len(bodies)} bodies and {size_bytes} bytes is too large; at most "
            f"{count_max} bodies and {bytes_max} bytes are allowed"
        )


def body_type_error(value: object) -> TypeError:
    """Make the error for a body that is not bytes."""
    return TypeError(f"a body must be bytes, not {type(value).__name__}")


def outcomes_of_all(
    first_number: int, count: int, call: Call, answer: Message | ClientError
) -> list[Outcome]:
    """Convert the result of a call that appends `count` bodies to their outcomes."""
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
    """Convert the result of an append call to an outcome."""
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
