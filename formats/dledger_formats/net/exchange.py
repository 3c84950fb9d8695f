"""Sends requests to a member on a new connection, one after the other, and returns the answers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from dledger_formats.protocol import frames
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand

ANSWER_BYTES_MAX: Final = 64 * 1024


class Conversation:
    """A connection on which one request waits for its answer at a time."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer_bytes_max: int
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = FrameDecoder(frame_bytes_max=answer_bytes_max)
        self._opaque = 0

    async def ask(self, code: int, body: bytes) -> RemotingCommand:
        """Send a request and return its answer; the caller sets a timeout.

        Raises OSError if the connection is lost, and FrameError if the answer is not a frame, or
        too long.
        """
        self._opaque += 1
        self._writer.write(frames.encode_requests(code, [(self._opaque, body)]))
        while chunk := await self._reader.read(ANSWER_BYTES_MAX):
            for command in self._decoder.feed(chunk):
                if command.is_response and command.opaque == self._opaque:
                    return command
        raise ConnectionResetError("the connection was closed without an answer")


async def exchange(host: str, port: int, code: int, body: bytes) -> RemotingCommand:
    """Send a request and return its answer; the caller sets a timeout.

    Raises OSError if the connection cannot be made or is lost, and FrameError if the answer is not
    a frame, or longer than ANSWER_BYTES_MAX.
    """
    async with conversation(host, port) as member:
        return await member.ask(code, body)


@contextlib.asynccontextmanager
async def conversation(
    host: str, port: int, *, answer_bytes_max: int = ANSWER_BYTES_MAX
) -> AsyncIterator[Conversation]:
    """Connect, for several requests; the caller sets a timeout. Raises OSError."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        yield Conversation(reader, writer, answer_bytes_max)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
