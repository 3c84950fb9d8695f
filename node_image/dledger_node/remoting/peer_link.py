"""The link to one peer: the connection that carries this member's requests and answers to it.

A link is one-way, so that the sender notices its loss. Messages that are sent while it is down are
dropped: the core expects loss. Messages that are sent while the socket is full wait in a bounded
queue. A push waits there as a range of entries, whose bytes are read from the store when the socket
has room. While a thread reads them from the disk, later messages wait, so that their order stays.
"""

import asyncio
import contextlib
import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, cast

from dledger_formats.json_objects import FormatError
from dledger_formats.net.dialing import dial, reason_of
from dledger_formats.peers import split_address
from dledger_formats.protocol import codes, frames, requests
from dledger_node.raft.messages import AppendRequest, InstallSnapshotRequest
from dledger_node.remoting import native
from dledger_node.remoting.keep_alive import keep_alive
from dledger_node.remoting.link_owner import Entries, OnDiskError, PeerLinkOwner, Push
from dledger_node.remoting.message_kinds import PeerMessage
from dledger_node.traffic import Traffic, Transferred

logger = logging.getLogger(__name__)

PUSH_BYTES_MAX: Final = 1 << 20
WRITE_BUFFER_BYTES_HIGH: Final = 4 << 20
QUEUED_MESSAGES_MAX: Final = 4096
CONNECT_TIMEOUT_S: Final = 1.0
HELLO_TIMEOUT_S: Final = 2.0
RETRY_DELAY_MIN_S: Final = 0.02
RETRY_DELAY_MAX_S: Final = 0.5
STEADY_S: Final = 1.0
"""If a link lasted less than this, the next attempt waits longer, as it may be lost too."""
ANSWER_BYTES_MAX: Final = 64 * 1024
SLICE_S: Final = 0.001
"""Time for which a turn of the loop may read and write entries for a link that lags."""


class PeerLink:
    """The link to one peer. `run` keeps it up while it is needed."""

    def __init__(
        self,
        owner: PeerLinkOwner,
        peer_id: str,
        address: str,
        *,
        dead_after_ms: int,
        uniform: Callable[[float, float], float],
        traffic: Traffic | None = None,
    ) -> None:
        self.peer_id = peer_id
        self.address = address
        self.dropped = 0
        """How many messages were dropped because the link was down or its queue full."""
        self._owner = owner
        self._dead_after_ms = dead_after_ms
        self._uniform = uniform
        self._transferred = (traffic or Traffic()).peers
        self._connection: _Connection | None = None
        self._connected_s = 0.0
        self._logged_reason = ""
        self._needed = True
        # Set when a retry must not wait any longer.
        self._hurry = asyncio.Event()
        # Set when there is a message to send, or when the link must be kept up.
        self._wanted = asyncio.Event()

    def need(self, needed: bool) -> None:
        """Set whether to keep the link up, or to open it only when there is a message to send."""
        self._needed = needed
        if needed:
            self._wanted.set()

    def renew(self) -> None:
        """Connect again at once, since the peer has started again, perhaps at another address.

        A connection that is younger than `STEADY_S` is kept: it may lead to the new process.
        """
        self._hurry.set()
        connection = self._connection
        now_s = asyncio.get_running_loop().time()
        if connection is not None and now_s - self._connected_s >= STEADY_S:
            connection.close()

    @property
    def up(self) -> bool:
        """Whether the peer has accepted this member's HELLO on the current connection."""
        return self._connection is not None

    def send(self, message: PeerMessage) -> None:
        """Send a message now or when the socket has room, or drop it."""
        if self._connection is None or not self._connection.send(message):
            self.dropped += 1
            self._wanted.set()

    async def run(self) -> None:
        """Connect, and reconnect, until cancelled. Delays grow while the peer cannot be reached or
        closes connections at once.
        """
        delay_s = 0.0
        now_s = asyncio.get_running_loop().time
        while True:
            await self._pause(self._uniform(delay_s / 2, delay_s))
            if not self._needed:
                await self._wanted.wait()
            self._wanted.clear()
            connection = await self._open_unless_renewed()
            if connection is None:
                self._owner.link_lost(self.peer_id)
                delay_s = _longer(delay_s)
                continue
            self._connected_s = now_s()
            self._connection = connection
            self._logged_reason = ""
            self._owner.link_restored(self.peer_id)
            try:
                await connection.lost
            finally:
                self._connection = None
                connection.close()
            delay_s = 0.0 if now_s() - self._connected_s >= STEADY_S else _longer(delay_s)
            self._owner.link_lost(self.peer_id)

    async def _pause(self, delay_s: float) -> None:
        """Wait before the next attempt, at most until the link is renewed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._hurry.wait()
        self._hurry.clear()

    async def _open_unless_renewed(self) -> "_Connection | None":
        """Connect and send HELLO; return None at once if the link is renewed."""
        opening = asyncio.ensure_future(self._open())
        hurry = asyncio.ensure_future(self._hurry.wait())
        try:
            await asyncio.wait({opening, hurry}, return_when=asyncio.FIRST_COMPLETED)
            return opening.result() if opening.done() else None
        finally:
            for task in (opening, hurry):
                task.cancel()
            await asyncio.gather(opening, hurry, return_exceptions=True)

    async def _open(self) -> "_Connection | None":
        """Connect and send HELLO. Returns None, and logs the reason, if either fails."""
        connection: _Connection | None = None
        try:
            # Not wait_for: before Python 3.12 it may swallow a cancellation, and run forever.
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                connection = await self._connect()
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                await connection.say_hello()
        except (OSError, TimeoutError, frames.FrameError) as error:
            self._tell(reason_of(error) or "timed out")
            if connection is not None:
                connection.close()
            return None
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        return connection

    def _tell(self, reason: str) -> None:
        """Log why there is no link; log the same reason only once."""
        if reason != self._logged_reason:
            logger.info("no link to %s at %s: %s", self.peer_id, self.address, reason)
        self._logged_reason = reason

    async def _connect(self) -> "_Connection":
        host, port = split_address(self.address)
        transport, connection = await dial(
            lambda: _Connection(self._owner, self.peer_id, self._transferred), host, port
        )
        opened: socket.socket | None = transport.get_extra_info("socket")
        if opened is not None:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(opened, self._dead_after_ms)
        return connection


class _Connection(asyncio.Protocol):
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
        full too, or the connection is gone.
        """
        if self._transport is None or self._transport.is_closing():
            return False
        if self._paused or self._queue:
            if len(self._queue) >= QUEUED_MESSAGES_MAX:
                return False
            self._queue.append(message)
            return True
        self._write(message)
        return True

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

    def _send(self, frame: Sequence[frames.Buffer]) -> None:
        """Write the buffers of one frame."""
        assert self._transport is not None
        self._transferred.sent_bytes += sum(map(len, frame))
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
        if rest is not None:
            self._queue.appendleft(rest)
        self._send_rest_later()


def _longer(delay_s: float) -> float:
    return min(RETRY_DELAY_MAX_S, max(RETRY_DELAY_MIN_S, delay_s * 2))
