"""Sends one request to a member on a new connection, and returns the answer."""

import asyncio
import contextlib
from typing import Final

from dledger_formats.protocol import frames
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand

ANSWER_BYTES_MAX: Final = 64 * 1024
_OPAQUE: Final = 1


async def exchange(host: str, port: int, code: int, body: bytes) -> RemotingCommand:
    """Send a request and return its answer; the caller sets a timeout.

    Raises OSError if the connection cannot be made or is lost, and FrameError if the answer is not
    a frame, or longer than ANSWER_BYTES_MAX.
    """
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(frames.encode_requests(code, [(_OPAQUE, body)]))
        decoder = FrameDecoder(frame_bytes_max=ANSWER_BYTES_MAX)
        while chunk := await reader.read(ANSWER_BYTES_MAX):
            for command in decoder.feed(chunk):
                if command.is_response and command.opaque == _OPAQUE:
                    return command
        raise ConnectionResetError("the connection was closed without an answer")
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
