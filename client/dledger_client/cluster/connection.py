"""A connection to one member: many requests in flight, matched to their responses by `opaque`.

All requests of one event loop turn go into one write, and all responses of one read are processed
together. This, not the speed of a single request, makes appends fast.
"""

import asyncio
from collections import deque
from typing import Final, Protocol, cast

from dledger_client.cluster.addresses import ServerAddress
from dledger_client.errors import ConnectionLostError
from dledger_formats.protocol.frames import (
    FRAME_BYTES_MAX,
    OPAQUE_MAX,
    FrameDecoder,
    FrameError,
    RemotingCommand,
    encode_requests,
)
from dledger_formats.protocol.go_away import GO_AWAY

WRITE_BYTES: Final = 64 * 1024
"""Bytes of bodies in one write; a full write does not wait for the end of the turn."""
UNSENT_BYTES_MAX: Final = 1024 * 1024
"""While more bytes than this wait for the kernel, requests stay here and count as not sent."""
SWEEP_INTERVAL_S: Final = 0.05
REFUSAL_KEPT_S: Final = 60.0
"""How long a refused batch counts: the setting that limits batches may change meanwhile."""
IDLE_S: Final = 60.0
"""Time after which a connection without requests is closed. Servers, Java's too, close it after
120 s. A request that meets their close on its way is of unknown outcome.
"""


class Reply(Protocol):
    """Receives the response to one request. Exactly one of the methods is called, once."""

    expires_at_s: float
    """When to stop waiting, on the loop's clock."""

    due_at_s: float
    """When the response is due, on the loop's clock; until then, silence is not a stall."""

    def answered(self, command: RemotingCommand) -> None:
        """Process the response."""

    def lost(self, error: ConnectionLostError) -> None:
        """Process an error: there will be no response."""


class FutureReply:
    """A reply that can be awaited; slower than a Call, for occasional requests."""

    __slots__ = ("due_at_s", "expires_at_s", "future")

    def __init__(self, expires_at_s: float) -> None:
        self.expires_at_s = expires_at_s
        self.due_at_s = 0.0
        self.future: asyncio.Future[RemotingCommand | ConnectionLostError]
        self.future = asyncio.get_running_loop().create_future()

    def answered(self, command: RemotingCommand) -> None:
        """Complete the future with the response."""
        if not self.future.done():
            self.future.set_result(command)

    def lost(self, error: ConnectionLostError) -> None:
        """Complete the future with the error as its result."""
        if not self.future.done():
            self.future.set_result(error)


class ConnectionWatcher(Protocol):
    """Reacts to connections that fail; implemented by Dispatcher."""

    def connection_lost(self, connection: "Connection") -> None:
        """React to a closed connection; called before its requests are ended."""

    def connection_stalled(self, connection: "Connection") -> None:
        """React to a stalled connection; called repeatedly while it is stalled."""


class Connection(asyncio.Protocol):
    """The protocol object of a connection; usable while `is_open` is true."""

    def __init__(
        self,
        address: ServerAddress,
        watcher: "ConnectionWatcher",
        *,
        stall_s: float,
        flag: int = 0,
    ) -> None:
        """`flag` is the flag of every request."""
        self.address = address
        self.member_id = address.member_id
        self.group_identity = ""
        """The identity of the member's group, as it reports; empty if it reports none."""
        self.bytes_as_numbers = False
        """Whether the member is a Java DLedger 0.4.3, which does not decode base64."""
        self.takes_batches = False
        """Whether the member supports APPEND_BATCH, as this project's servers do."""
        self._refused_bodies = 0
        self._refused_at_s = -REFUSAL_KEPT_S
        self.closed = asyncio.Event()
        self._stall_s = stall_s
        self._flag = flag
        self._watcher = watcher
        self._loop = asyncio.get_running_loop()
        # Java 0.4.3 copies a request that it cannot parse into the header of its response.
        self._decoder = FrameDecoder(header_bytes_max=FRAME_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        # Whether the kernel and the transport take more; not while the connection is being closed.
        self._can_write = True
        self._is_closing = False
        self.is_retired = False
        """Whether the connection is closed as soon as no response is awaited."""
        # Whether the member has reported that every request without an answer was not read.
        self._goes_away = False
        self._end_reason = ""
        self._next_opaque = 0
        # A request is in exactly one of these: not yet written to the socket, or waiting for its
        # response.
        self._outbox: deque[tuple[int, bytes, Reply]] = deque()
        self._outbox_bytes = 0
        self._pending: dict[int, Reply] = {}
        self._flush_is_due = False
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self.heard_at_s = self._loop.time()
        """When data last arrived, on the loop's clock."""
        # The same, or later: when a request was sent while no response was due.
        self._last_activity_s = self.heard_at_s
        # Whether a response that was due has expired since data last arrived.
        self._owes_response = False

    def __str__(self) -> str:
        return f"{self.member_id} at {self.address}" if self.member_id else str(self.address)

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None

    def note_refused_batch(self, bodies: int) -> None:
        """Note that the member does not accept so many bodies in one request."""
        self._refused_bodies, self._refused_at_s = bodies, self._loop.time()

    @property
    def refused_bodies(self) -> int | None:
        """The number of bodies in the last batch that was refused; None if none was lately."""
        is_kept = self._loop.time() < self._refused_at_s + REFUSAL_KEPT_S
        return self._refused_bodies if is_kept else None

    @property
    def is_stalled(self) -> bool:
        """Whether responses are due, or requests cannot be written, and nothing has arrived for
        `stall_s`.
        """
        now_s = self._loop.time()
        return self._is_silent(now_s) and not self._has_nothing_due(now_s)

    def send(self, code: int, body: bytes, reply: Reply) -> None:
        """Send a request with the next write; `reply` receives the response or the error."""
        assert self.is_open, "the connection is closed"
        if not (self._pending or self._outbox or self._owes_response):
            self._last_activity_s = self._loop.time()
        self._outbox.append((code, body, reply))
        self._outbox_bytes += len(body)
        if self._outbox_bytes >= WRITE_BYTES:
            self._flush()
        elif not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)
        if self._sweep_timer is None:
            self._sweep_timer = self._loop.call_later(SWEEP_INTERVAL_S, self._sweep)

    async def ask(self, code: int, body: bytes, timeout_s: float) -> RemotingCommand:
        """Send one request and return the response. Raises ConnectionLostError if none arrives."""
        if not self.is_open:
            raise ConnectionLostError(f"the connection to {self} is closed", was_sent=False)
        reply = FutureReply(self._loop.time() + timeout_s)
        self.send(code, body, reply)
        answer = await reply.future
        if isinstance(answer, ConnectionLostError):
            raise answer
        return answer

    def retire(self) -> None:
        """Close the connection as soon as no request waits for a response."""
        self.is_retired = True
        if not self._pending and not self._outbox:
            self.abort(f"the client has left {self}")  # what is not written yet has expired

    def return_unsent(self, reason: str) -> None:
        """End the requests that are not written yet, as not sent; `reason` becomes their error."""
        unsent, self._outbox, self._outbox_bytes = self._outbox, deque(), 0
        error = ConnectionLostError(reason, was_sent=False)
        for _, _, reply in unsent:
            reply.lost(error)

    def abort(self, reason: str) -> None:
        """Close the connection now; `reason` becomes the error of its outstanding requests."""
        if self._transport is not None:
            self._is_closing, self._can_write = True, False
            self._end_reason = self._end_reason or reason
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio.Transport, but have its methods.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)
        self._idle_timer = self._loop.call_later(IDLE_S, self._close_if_idle)

    def data_received(self, data: bytes) -> None:
        self.heard_at_s = self._last_activity_s = self._loop.time()
        self._owes_response = False
        try:
            commands = self._decoder.feed(data)
        except FrameError as error:
            commands = error.before
            what = f"sent an invalid frame: {error}"
            if data.startswith(b"HTTP/"):
                what = "answers in HTTP: it is a status page, not the port for clients"
            self.abort(f"{self} {what}")
        for command in commands:
            if command.is_response:
                reply = self._pending.pop(command.opaque, None)
                if reply is not None:  # None: the response arrived after its timeout
                    reply.answered(command)
            elif command.code == GO_AWAY:
                self._goes_away = True
                self.abort(f"{self} stops and has not read the request")
        if self.is_retired:
            self.retire()

    def pause_writing(self) -> None:
        self._can_write = False

    def resume_writing(self) -> None:
        if not self._is_closing:
            self._can_write = True
            self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.closed.set()
        for timer in (self._sweep_timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        cause = exc or "closed by the peer"
        reason = self._end_reason or f"the connection to {self} was lost: {cause}"
        pending, self._pending = self._pending, {}
        self._watcher.connection_lost(self)
        error = ConnectionLostError(reason, was_sent=not self._goes_away)
        for reply in pending.values():
            reply.lost(error)
        self.return_unsent(reason)

    def _is_silent(self, now_s: float) -> bool:
        return now_s - self._last_activity_s >= self._stall_s

    def _has_nothing_due(self, now_s: float) -> bool:
        """Return whether requests can be written, and no response is due yet; stop checking at the
        first one that is.
        """
        is_blocked = self._outbox and not self._can_write
        return not is_blocked and all(reply.due_at_s > now_s for reply in self._pending.values())

    def _flush(self) -> None:
        self._flush_is_due = False
        now_s = self._loop.time()
        if self._is_silent(now_s) and not self._owes_response and self._has_nothing_due(now_s):
            self._last_activity_s = now_s
        while self._outbox and self._can_write and self._transport is not None:
            code = self._outbox[0][0]
            requests: list[tuple[int, bytes]] = []
            size_bytes = 0
            while self._outbox and self._outbox[0][0] == code and size_bytes < WRITE_BYTES:
                _, body, reply = self._outbox.popleft()
                size_bytes += len(body)
                self._pending[self._next_opaque] = reply
                requests.append((self._next_opaque, body))
                self._next_opaque = (self._next_opaque + 1) & OPAQUE_MAX
            self._outbox_bytes -= size_bytes
            self._transport.write(encode_requests(code, requests, self._flag))

    def _sweep(self) -> None:
        """End expired requests and check for a stall."""
        self._sweep_timer = None
        if self._transport is None or not (self._pending or self._outbox):
            return
        now_s = self._loop.time()
        self._expire_pending(now_s)
        self._expire_outbox(now_s)
        if self.is_retired:
            self.retire()
        if self.is_stalled:
            self._watcher.connection_stalled(self)
        if self._sweep_timer is None:
            self._sweep_timer = self._loop.call_later(SWEEP_INTERVAL_S, self._sweep)

    def _close_if_idle(self) -> None:
        is_used = self._pending or self._outbox
        left_s = IDLE_S if is_used else self._last_activity_s + IDLE_S - self._loop.time()
        if left_s > 0:
            self._idle_timer = self._loop.call_later(left_s, self._close_if_idle)
        else:
            self.abort(f"the connection to {self} was not used for {IDLE_S:g} s")

    def _expire_pending(self, now_s: float) -> None:
        overdue = [key for key, reply in self._pending.items() if reply.expires_at_s <= now_s]
        error = ConnectionLostError(f"{self} did not respond in time", was_sent=True)
        for key in overdue:
            reply = self._pending.pop(key)
            self._owes_response |= reply.due_at_s <= now_s
            reply.lost(error)

    def _expire_outbox(self, now_s: float) -> None:
        overdue = [item for item in self._outbox if item[2].expires_at_s <= now_s]
        if not overdue:
            return
        self._outbox = deque(item for item in self._outbox if item[2].expires_at_s > now_s)
        self._outbox_bytes = sum(len(body) for _, body, _ in self._outbox)
        error = ConnectionLostError(f"{self} did not accept the request in time", was_sent=False)
        for _, _, reply in overdue:
            reply.lost(error)
