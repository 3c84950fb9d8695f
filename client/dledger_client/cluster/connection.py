"""One connection to one member: many requests in flight, paired with their answers by `opaque`.

Requests of one turn of the event loop leave in one write, and all answers of one read are handed
out together; that, and not the speed of a single request, is what makes appends fast.
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

WRITE_BYTES: Final = 64 * 1024
"""As many bytes of bodies go into one write; more do not wait for the turn to end."""
UNSENT_BYTES_MAX: Final = 1024 * 1024
"""Above this many bytes that the kernel has not taken, requests stay here and count as not sent."""
SWEEP_INTERVAL_S: Final = 0.05


class Reply(Protocol):
    """Waits for the answer to one request. One of the methods is called, once."""

    expires_at_s: float
    """When to stop waiting, on the loop's clock."""

    due_at_s: float
    """Until when the other side may rightly keep the answer back."""

    def answered(self, command: RemotingCommand) -> None:
        """Take the answer."""

    def lost(self, error: ConnectionLostError) -> None:
        """Hear that no answer will come."""


class FutureReply:
    """A reply to await, for the request that is sent now and then."""

    __slots__ = ("due_at_s", "expires_at_s", "future")

    def __init__(self, expires_at_s: float) -> None:
        self.expires_at_s = expires_at_s
        self.due_at_s = 0.0
        self.future: asyncio.Future[RemotingCommand | ConnectionLostError]
        self.future = asyncio.get_running_loop().create_future()

    def answered(self, command: RemotingCommand) -> None:
        """Wake who awaits the future."""
        if not self.future.done():
            self.future.set_result(command)

    def lost(self, error: ConnectionLostError) -> None:
        """Wake who awaits the future; it holds the error as a value."""
        if not self.future.done():
            self.future.set_result(error)


class ConnectionWatcher(Protocol):
    """Who is told when a connection can no longer be relied on."""

    def connection_lost(self, connection: "Connection") -> None:
        """Hear that it is closed, before its requests hear of it."""

    def connection_stalled(self, connection: "Connection") -> None:
        """Hear, again and again, that it owes answers and is silent."""


class Connection(asyncio.Protocol):
    """Made by the loop's `create_connection`; usable until `is_open` turns false."""

    def __init__(
        self,
        address: ServerAddress,
        watcher: "ConnectionWatcher",
        *,
        stall_s: float,
    ) -> None:
        self.address = address
        self.member_id = address.member_id
        self.bytes_as_numbers = False
        """Whether the member is a Java DLedger 0.4.3, which reads no base64."""
        self.takes_batches = False
        """Whether the member knows APPEND_BATCH, as ours do."""
        self.closed = asyncio.Event()
        self._stall_s = stall_s
        self._watcher = watcher
        self._loop = asyncio.get_running_loop()
        # Java 0.4.3 repeats what it could not read in the header of its answer, whole.
        self._decoder = FrameDecoder(header_bytes_max=FRAME_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._is_writable = True
        self._is_retired = False
        self._end_reason = ""
        self._next_opaque = 0
        # A request is in one of these: not yet handed to the socket, or awaiting its answer.
        self._outbox: deque[tuple[int, bytes, Reply]] = deque()
        self._outbox_bytes = 0
        self._pending: dict[int, Reply] = {}
        self._flush_is_due = False
        self._sweep_timer: asyncio.TimerHandle | None = None
        # When the other side last gave a sign of life, or began to owe one.
        self._last_activity_s = self._loop.time()

    def __str__(self) -> str:
        return f"{self.member_id} at {self.address}" if self.member_id else str(self.address)

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None

    @property
    def is_stalled(self) -> bool:
        """Whether answers are owed, and nothing has come for `stall_s`.

        An answer that may rightly be kept back is owed only when its time is over.
        """
        now_s = self._loop.time()
        return self._is_silent(now_s) and not self._has_nothing_due(now_s)

    def send(self, code: int, body: bytes, reply: Reply) -> None:
        """Send a request with the next write; `reply` hears what became of it."""
        assert self.is_open, "a closed connection was used"
        if not self._pending and not self._outbox:
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
        """Send one request and await its answer; ConnectionLostError when none comes."""
        if not self.is_open:
            raise ConnectionLostError(f"the connection to {self} is closed", was_sent=False)
        reply = FutureReply(self._loop.time() + timeout_s)
        self.send(code, body, reply)
        answer = await reply.future
        if isinstance(answer, ConnectionLostError):
            raise answer
        return answer

    def retire(self) -> None:
        """Close once every answer that is owed has come."""
        self._is_retired = True
        if self._transport is not None and not self._pending and not self._outbox:
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once; what awaits an answer hears `reason`."""
        if self._transport is not None:
            self._end_reason = self._end_reason or reason
            self._transport.abort()

    # The loop calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclasses, but have all of its methods.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_MAX)

    def data_received(self, data: bytes) -> None:
        self._last_activity_s = self._loop.time()
        try:
            commands = self._decoder.feed(data)
        except FrameError as error:
            commands = error.before
            self.abort(f"{self} sent bytes that are no frame: {error}")
        for command in commands:
            if command.is_response:
                reply = self._pending.pop(command.opaque, None)
                if reply is not None:  # none: it came after its time
                    reply.answered(command)
        if self._is_retired:
            self.retire()

    def pause_writing(self) -> None:
        self._is_writable = False

    def resume_writing(self) -> None:
        self._is_writable = True
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.closed.set()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        reason = self._end_reason or f"the connection to {self} ended: {exc or 'closed by it'}"
        unsent, self._outbox = self._outbox, deque()
        pending, self._pending = self._pending, {}
        self._watcher.connection_lost(self)
        error = ConnectionLostError(reason, was_sent=True)
        for reply in pending.values():
            reply.lost(error)
        error = ConnectionLostError(reason, was_sent=False)
        for _, _, reply in unsent:
            reply.lost(error)

    def _is_silent(self, now_s: float) -> bool:
        return now_s - self._last_activity_s >= self._stall_s

    def _has_nothing_due(self, now_s: float) -> bool:
        """Whether no answer is owed yet; looks no further than the first that is."""
        return all(reply.due_at_s > now_s for reply in self._pending.values())

    def _flush(self) -> None:
        self._flush_is_due = False
        now_s = self._loop.time()
        if self._is_silent(now_s) and self._has_nothing_due(now_s):
            self._last_activity_s = now_s
        while self._outbox and self._is_writable and self._transport is not None:
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
            self._transport.write(encode_requests(code, requests))

    def _sweep(self) -> None:
        """End what waited too long, and look whether the other side still lives."""
        self._sweep_timer = None
        if self._transport is None or not (self._pending or self._outbox):
            return
        now_s = self._loop.time()
        self._expire_pending(now_s)
        self._expire_outbox(now_s)
        if self._is_retired:
            self.retire()
        if self.is_stalled:
            self._watcher.connection_stalled(self)
        if self._sweep_timer is None:
            self._sweep_timer = self._loop.call_later(SWEEP_INTERVAL_S, self._sweep)

    def _expire_pending(self, now_s: float) -> None:
        overdue = [key for key, reply in self._pending.items() if reply.expires_at_s <= now_s]
        error = ConnectionLostError(f"{self} gave no answer in time", was_sent=True)
        for key in overdue:
            self._pending.pop(key).lost(error)

    def _expire_outbox(self, now_s: float) -> None:
        overdue = [item for item in self._outbox if item[2].expires_at_s <= now_s]
        if not overdue:
            return
        self._outbox = deque(item for item in self._outbox if item[2].expires_at_s > now_s)
        self._outbox_bytes = sum(len(body) for _, body, _ in self._outbox)
        error = ConnectionLostError(f"{self} takes no more bytes", was_sent=False)
        for _, _, reply in overdue:
            reply.lost(error)
