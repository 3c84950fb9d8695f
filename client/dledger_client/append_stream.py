"""Appending many bodies: a window of appends in flight, outcomes in the order of the bodies."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from typing import TypeAlias

from dledger_client.calls import Call
from dledger_client.errors import ClientError, GroupUnreachableError, RefusedError
from dledger_client.outcomes import Acknowledged, Outcome, Refused, Unknown
from dledger_client.tasks import Spawn
from dledger_formats.requests import AppendEntryResponse, DLedgerResponseCode, Message

Bodies: TypeAlias = Iterable[bytes] | AsyncIterable[bytes]


async def append_stream(
    start: Callable[[bytes], Call],
    bodies: Bodies,
    *,
    in_flight: int,
    in_flight_bytes: int,
    spawn: Spawn,
) -> AsyncGenerator[Outcome, None]:
    """Start an append for each body and yield what became of it, in the order of the bodies.

    At most `in_flight` bodies, or so many bytes, are taken before the outcome of the first of them
    is fetched. An error of `bodies` is raised once the outcomes of all before it were yielded.
    Whoever leaves early hears no outcome of the rest: what was not sent will not be.
    """
    window = _Window(in_flight, in_flight_bytes)
    feeder = spawn(window.feed(start, bodies))
    number = 0
    try:
        while (call := window.oldest or await window.first()) is not None:
            answer = await call.answer
            window.remove_first()
            yield outcome_of(number, call, answer)
            number += 1
    finally:
        feeder.cancel()
        window.cancel_all()
    if window.error is not None:
        raise window.error


class _Window:
    """The appends whose outcome was not yet fetched, oldest first."""

    def __init__(self, calls_max: int, bytes_max: int) -> None:
        self.error: Exception | None = None
        self._calls_max = calls_max
        self._bytes_max = bytes_max
        self._calls: deque[tuple[Call, int]] = deque()
        self._bytes = 0
        self._is_fed = False
        self._has_room = asyncio.Event()
        self._has_news = asyncio.Event()

    async def feed(self, start: Callable[[bytes], Call], bodies: Bodies) -> None:
        """Start appends as long as there are bodies, and as there is room."""
        try:
            if isinstance(bodies, AsyncIterable):
                async for body in bodies:
                    await self._wait_for_room()
                    self._add(start(body), len(body))
            else:
                for body in bodies:
                    while len(self._calls) >= self._calls_max or self._bytes >= self._bytes_max:
                        await self._wait_for_room()
                    self._add(start(body), len(body))
        except Exception as error:  # the caller's own; append_stream raises it
            self.error = error
        finally:
            self._is_fed = True
            self._has_news.set()

    @property
    def oldest(self) -> Call | None:
        """The oldest append; None when there is none now."""
        return self._calls[0][0] if self._calls else None

    async def first(self) -> Call | None:
        """Return the oldest append, or None after the last one."""
        while not self._calls and not self._is_fed:
            self._has_news.clear()
            await self._has_news.wait()
        return self.oldest

    def remove_first(self) -> None:
        """Make room."""
        _, body_bytes = self._calls.popleft()
        self._bytes -= body_bytes
        self._has_room.set()

    def cancel_all(self) -> None:
        """Wait for nothing any more."""
        for call, _ in self._calls:
            if not call.answer.done():
                call.cancel()

    def _is_full(self) -> bool:
        return len(self._calls) >= self._calls_max or self._bytes >= self._bytes_max

    async def _wait_for_room(self) -> None:
        while self._is_full():
            self._has_room.clear()
            await self._has_room.wait()

    def _add(self, call: Call, body_bytes: int) -> None:
        self._calls.append((call, body_bytes))
        self._bytes += body_bytes
        self._has_news.set()


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
