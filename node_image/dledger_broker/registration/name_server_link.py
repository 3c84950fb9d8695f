"""A connection to a name server."""

import asyncio
from collections.abc import Callable
from typing import Final

from dledger_formats.protocol.frames import FrameDecoder, FrameError, RemotingCommand

ANSWER_S: Final = 10.0
"""How long an answer may take. Java waits 24 s."""


class RegistrationError(Exception):
    """A name server did not accept a registration."""


class NameServerLink(asyncio.Protocol):
    """A connection to a name server, over which one request is under way at a time."""

    def __init__(self, ended: Callable[[], None]) -> None:
        """`ended` is called when the connection has ended."""
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder()
        self._asked: tuple[int, asyncio.Future[RemotingCommand]] | None = None
        self._end: Exception | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the connection can no longer be used."""
        return self._end is not None

    async def ask(self, frame: bytes, opaque: int) -> RemotingCommand:
        """Send a request and return its answer. Raises RegistrationError or FrameError."""
        if self._end is not None:
            raise self._end
        assert self._transport is not None
        answer: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        self._asked = opaque, answer
        self._transport.write(frame)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await asyncio.shield(answer)  # `settle` may wait on
        except TimeoutError:
            answer.cancel()
            raise RegistrationError(f"it did not answer within {ANSWER_S:g} s") from None

    async def settle(self, within_s: float) -> None:
        """Wait for the answer to a request that is under way, or for the end of the connection."""
        if self._asked is not None:
            _, answer = self._asked
            await asyncio.wait({answer}, timeout=within_s)
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # else asyncio would log that it was never retrieved

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    # -- called by the event loop ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport  # type: ignore[assignment]  # uvloop's has all methods

    def data_received(self, data: bytes) -> None:
        """Take the answer; ignore anything else that a name server sends."""
        try:
            for command in self._decoder.feed(data):
                if self._asked is not None and self._asked[0] == command.opaque:
                    _, answer = self._asked
                    if not answer.done():  # else it came too late
                        answer.set_result(command)
        except FrameError as error:
            self._fail(error)
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """End the request that is under way."""
        self._fail(RegistrationError("it closed the connection"))

    def _fail(self, error: Exception) -> None:
        self._end = self._end or error
        self._ended()
        if self._asked is not None and not self._asked[1].done():
            self._asked[1].set_exception(self._end)
