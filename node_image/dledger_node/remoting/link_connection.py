"""One connection of a link to a peer: what is sent on it, and in which order.

Messages that are sent while the socket is full wait in a bounded queue. A push waits there as a
range of entries, whose bytes are read from the store when the socket has room. While a thread reads
them from the disk, later messages wait, so that their order stays.
"""

import asyncio
import contextlib
import fcntl
import socket
import sys
import termios
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, TypeAlias, cast

from dledger_formats.json_objects import FormatError
from dledger_formats.protocol import codes, frames, requests
from dledger_node.raft.messages import AppendRequest, InstallSnapshotRequest
from dledger_node.remoting import native
from dledger_node.remoting.link_owner import Entries, OnDiskError, PeerLinkOwner, Push
from dledger_node.remoting.message_kinds import PeerMessage
from dledger_node.remoting.snapshot_messages import SnapshotChunk
from dledger_node.traffic import Transferred

PUSH_BYTES_MAX: Final = 1 << 20
WRITE_BUFFER_BYTES_HIGH: Final = 4 << 20
QUEUED_MESSAGES_MAX: Final = 4096
ANSWER_BYTES_MAX: Final = 64 * 1024
SLICE_S: Final = 0.001
"""Time for which a turn of the loop may read and write entries for a link that lags."""
SentOnce: TypeAlias = InstallSnapshotRequest | SnapshotChunk
SENT_ONCE: Final = (InstallSnapshotRequest, SnapshotChunk)
"""Large messages that are repeated until they have had an effect. While one has not reached the
peer's host, it is not sent again: on a slow link, the copies would delay all other messages.
"""


class LinkConnection(asyncio.Protocol):
    """One connection of a link."""

    def __init__(self, owner: PeerLinkOwner, peer_id: str, transferred: Transferred) -> None:
        loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = loop.create_future()
        self._owner = owner
        self._peer_id = peer_id
        self._transferred = transferred
        self._answer: asyncio.Future[None] = loop.create_future()
        self._decoder = frames.FrameDecoder(frame_bytes_max=ANSWER_BYTES_MAX)
        self._queue: deque[PeerMessage] = deque()
        self._written_bytes = 0
        self._last: dict[type[PeerMessage], tuple[object, int]] = {}
        """The last message of each of `SENT_ONCE`, and up to which byte it was written."""
        self._paused = self._is_due = self._is_fetching = False
        self._transport: asyncio.Transport | None = None

    async def say_hello(self) -> None:
        """Send HELLO and wait for the answer. Raises ConnectionError with the peer's refusal."""
        assert self._transport is not None
        # A peer that was killed may have accepted the connection; uvloop then raises on a write.
        if not self._transport.is_closing():
            self._send([native.encode_hello(self._owner.hello(self._peer_id), opaque=0)])
        await self._answer

    def send(self, message: PeerMessage) -> bool:
        """Write the message, or queue it while the socket is full. Returns False if the queue is
        full too, the connection is gone, or the same one of `SENT_ONCE` is still on its way.
        """
        if self._transport is None or self._transport.is_closing():
            return False
        if isinstance(message, SENT_ONCE) and self._is_on_its_way(message):
            return False
        if self._paused or self._queue:
            if len(self._queue) >= QUEUED_MESSAGES_MAX:
                return False
            self._queue.append(message)
            return True
        self._write(message)
        return True

    def _is_on_its_way(self, message: SentOnce) -> bool:
        """Return whether the same message waits here or has not reached the peer's host."""
        assert self._transport is not None
        sought = _content_of(message)
        queued = (_content_of(one) for one in self._queue if isinstance(one, SENT_ONCE))
        if sought in queued:
            return True
        content, end = self._last.get(type(message), (None, 0))
        arrived_bytes = self._written_bytes - _unacknowledged_bytes(self._transport)
        return sought == content and arrived_bytes < end

    def close(self) -> None:
        """Cut the connection at once; messages that were not sent are lost."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # uvloop's transports are not subclasses, but have all of its methods.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_HIGH)

    def data_received(self, data: bytes) -> None:
        """Read the answer to HELLO, the only message in this direction."""
        self._transferred.received_bytes += len(data)
        try:
            for command in self._decoder.feed(data):
                response = requests.Response.from_json(command.body)
                if self._answer.done():
                    continue
                if response.code == codes.DLedgerResponseCode.SUCCESS:
                    self._answer.set_result(None)
                else:
                    self._answer.set_exception(ConnectionRefusedError(f"refused: {command.remark}"))
        except (frames.FrameError, FormatError) as error:
            if not self._answer.done():
                self._answer.set_exception(
                    ConnectionError(f"the answer to HELLO cannot be read: {error}")
                )
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        """End `say_hello`, and resolve `lost`."""
        self._queue.clear()
        if not self._answer.done():
            self._answer.set_exception(
                ConnectionResetError("the peer closed the connection before it answered HELLO")
            )
            self._answer.exception()  # marks it as retrieved: `say_hello` may have been cancelled
        with contextlib.suppress(asyncio.InvalidStateError):
            self.lost.set_result(None)

    def pause_writing(self) -> None:
        """Queue messages from now on."""
        self._paused = True

    def resume_writing(self) -> None:
        """Send queued messages until the socket is full again, in turns of SLICE_S."""
        self._paused = False
        self._send_queued()

    def _send_queued(self) -> None:
        self._is_due, until_s = False, time.perf_counter() + SLICE_S
        while self._queue and time.perf_counter() < until_s:
            if self._paused or self._is_fetching:
                return  # once this has ended, the rest is sent
            self._write(self._queue.popleft())
        self._send_rest_later()

    def _send_rest_later(self) -> None:
        if self._queue and not (self._paused or self._is_fetching or self._is_due):
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._send_queued)

    def _write(self, message: PeerMessage) -> None:
        assert self._transport is not None
        if self._transport.is_closing():  # uvloop would raise; `connection_lost` follows
            return
        if isinstance(message, AppendRequest | InstallSnapshotRequest):
            self._write_push(message)
        else:
            self._send(native.encode(message))
        if isinstance(message, SENT_ONCE):
            self._last[type(message)] = _content_of(message), self._written_bytes

    def _send(self, frame: Sequence[frames.Buffer]) -> None:
        """Write the buffers of one frame."""
        assert self._transport is not None
        frame_bytes = sum(map(len, frame))
        self._written_bytes += frame_bytes
        self._transferred.sent_bytes += frame_bytes
        self._transport.writelines(frame)

    def _write_push(self, push: Push) -> None:
        """Write a push in frames. Entries that must wait go back to the front of the queue."""
        assert self._transport is not None
        until_s = time.perf_counter() + SLICE_S
        while True:
            rest = self._write_entries(push, self._read(push))
            if rest is None or self._transport.is_closing():
                return  # all is written, or this write found the connection broken
            push = rest
            if self._paused or time.perf_counter() >= until_s:
                self._queue.appendleft(push)
                self._send_rest_later()
                return

    def _write_entries(self, push: Push, found: Entries | None) -> AppendRequest | None:
        """Write the first entries; return the rest. The leader pushes the rest of an install."""
        if found is None:
            return None
        entries, last_index = found
        self._send(native.encode(push.until(last_index), entries))
        if isinstance(push, InstallSnapshotRequest) or last_index >= push.last_index:
            return None
        return push.after(last_index)

    def _read(self, push: Push) -> Entries | None:
        """Return a push's first entries; None if it is out of date, or now waits for a fetch."""
        try:
            return self._owner.read_entries(push, PUSH_BYTES_MAX)
        except OnDiskError:
            self._is_fetching = True
            self._queue.appendleft(push)
            self._owner.fetch(push, PUSH_BYTES_MAX, partial(self._fetched, push))
            return None

    def _fetched(self, push: Push, found: Entries | None) -> None:
        self._is_fetching = False
        if self._transport is None or self._transport.is_closing() or not self._queue:
            return  # the connection is lost
        self._queue.popleft()
        rest = self._write_entries(push, found)
        if isinstance(push, SENT_ONCE):
            self._last[type(push)] = _content_of(push), self._written_bytes
        if rest is not None:
            self._queue.appendleft(rest)
        self._send_rest_later()


def _content_of(message: SentOnce) -> object:
    """Return what makes two messages of a kind the same."""
    if isinstance(message, SnapshotChunk):
        return SnapshotChunk, message.last_included_index, message.offset
    return InstallSnapshotRequest, message.term, message.first_index


def _unacknowledged_bytes(transport: asyncio.Transport) -> int:
    """Return how many of the bytes that were written the other host has not acknowledged."""
    opened: socket.socket = transport.get_extra_info("socket")
    in_kernel = fcntl.ioctl(opened.fileno(), termios.TIOCOUTQ, bytes(4))
    return transport.get_write_buffer_size() + int.from_bytes(in_kernel, sys.byteorder)
