"""One accepted connection, of a client or of a peer's link: its bytes, its limits and its end.

Its `RequestHandler` handles the frames: for DLedger, that of `dispatch`. Every byte from outside
has a limit (`limits`). Bytes that no correct peer sends close the connection and are counted; other
connections are not affected. While the other side does not read its answers, nothing more is read
from it or done for it.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, cast

from dledger_formats.protocol import frames
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.go_away import GO_AWAY_FRAME
from dledger_node.config import join_address
from dledger_node.errors import LinkRefusedError, RemoteProtocolError
from dledger_node.remoting import native
from dledger_node.remoting.connection_owner import ConnectionOwner, RequestHandler
from dledger_node.remoting.input_turns import InputTurns
from dledger_node.remoting.limits import Reason
from dledger_node.remoting.lingering import linger
from dledger_node.remoting.read_turns import READS_WAITING_MAX

DECODED_BYTES: Final = 64 * 1024
"""Bytes of a client that are decoded at once; the smallest frames take 1.2 ms."""


class Connection(asyncio.Protocol):
    """One accepted connection: an asyncio protocol with limits."""

    def __init__(self, owner: ConnectionOwner, handler: RequestHandler) -> None:
        self.peer_id: str | None = None
        """The member that the connection's HELLO named; None for a client."""
        self.takes_go_away = False
        """Whether the other side understands GO_AWAY."""
        self.address = "?"
        """The address of the other side's host."""
        self.unread_since_s: float | None = None
        """The time since which the other side has not read its answers; None while it reads them.
        """
        self.reads_waiting = 0
        """The number of reads that are not answered."""
        self.unsent_bytes = 0
        """Bytes of answers that the kernel has not accepted yet."""
        self._gate = owner.gate
        self._read_turns = owner.read_turns
        self._limits = owner.gate.limits
        self._transferred = owner.gate.traffic.clients
        self._decoder = frames.FrameDecoder(self._limits.client_frame_bytes_max)
        self._handler = handler
        self._transport: asyncio.Transport | None = None
        self._peername = "?"
        # Whole frames that wait until the other side reads its answers, until fewer reads wait, or
        # for the next turn. After them come the bytes that are not decoded yet.
        self._backlog: Sequence[RemotingCommand] = ()
        self._undecoded = b""
        self._held_bytes = 0
        self._waits_for_room = False
        # The timer after which a connection above its address's quota is read again.
        self._over_quota: asyncio.TimerHandle | None = None
        self._active_at_s = 0.0
        # When the HELLO was refused; the other side then gets a short time to read the answer.
        self._refused_since_s: float | None = None
        self._is_cut = self._is_ended = self._takes_no_more = False
        # When the wait for the first frame, or for the rest of a frame, began; None without a wait.
        self._first_frame_since_s: float | None = None
        self._frame_since_s: float | None = None

    def __str__(self) -> str:
        return f"{self.peer_id} at {self._peername}" if self.peer_id else self._peername

    def send(self, data: frames.Buffer) -> None:
        """Write frames, or parts of one; the caller must not change `data` afterwards.

        The connection is cut if too many bytes wait to be read.
        """
        transport = self._transport
        if transport is None or self._is_ended or transport.is_closing():
            return
        self._transferred.sent_bytes += len(data)
        transport.write(data)
        if not self._count_unsent(transport):
            self.cut(Reason.UNREAD, f"{self.unsent_bytes} bytes of answers are unread")

    def close(self) -> None:
        """Send what was written, then close. Requests that are not answered yet are dropped."""
        self._drop_input()
        if self._transport is not None:
            self._transport.close()

    def end(self) -> None:
        """Send what was written, and let the client close (`lingering`); close a peer's link.

        Every append that was read must be answered by now: GO_AWAY says that no other was read.
        """
        if self.peer_id is not None:
            self.close()
            return
        self._drop_input()
        transport = self._transport
        if transport is not None and not (self._is_ended or transport.is_closing()):
            self._is_ended = True
            if self.takes_go_away:
                transport.write(GO_AWAY_FRAME)
            linger(transport, self.connection_lost)

    # -- called by the gate and the dispatcher ---------------------------------------------------

    def overdue(self, now_s: float) -> Reason | None:
        """Return the time limit that this connection has exceeded; None if it is within all."""
        if self._transport is not None and self.unsent_bytes:
            self._count_unsent(self._transport)
        limits = self._limits
        unread = self.unread_since_s is not None
        for since_s, limit_s, reason in (
            (self._first_frame_since_s, limits.first_frame_s, Reason.FIRST_FRAME),
            (None if unread else self._frame_since_s, limits.frame_s, Reason.FRAME),
            (self.unread_since_s, limits.unread_s, Reason.UNREAD),
            (None if self.peer_id else self._active_at_s, limits.idle_s, Reason.IDLE),
            (self._refused_since_s, limits.first_frame_s, Reason.LINK_REFUSED),
        ):
            if since_s is not None and now_s - since_s >= limit_s:
                return reason
        return None

    def cut(self, reason: Reason, detail: str) -> None:
        """Close at once; bytes that wait to be sent are lost."""
        self._drop_input()
        if self._transport is not None and not self._is_cut:
            self._is_cut = True
            self._gate.count_closed(self, reason, detail)
            self._release_unsent()
            self._transport.abort()  # also while it is closing, which may wait for the other side

    def take_no_more(self) -> None:
        """Stop reading requests if the client understands GO_AWAY, which will say so."""
        if self.takes_go_away:
            self._read_no_more()

    def _read_no_more(self) -> None:
        self._takes_no_more = True
        self._forget_turns()
        self._read_or_not()

    def pause_for_room(self) -> None:
        """Stop reading until `resume`: all connections together hold too many bytes."""
        self._waits_for_room = True
        self._read_or_not()

    def resume(self) -> None:
        """Resume reading."""
        self._waits_for_room = False
        self._read_or_not()

    def put_off(self, commands: Sequence[RemotingCommand]) -> None:
        """Keep commands, and read no others, until `go_on` or the next turn of the input."""
        self._backlog = commands

    def go_on(self) -> None:
        """Handle the commands that were put off, then read again, unless answers are unread."""
        if self._has_input:
            self._input_turns.ready(self)
        self._read_or_not()

    def take_input(self, until_s: float) -> bool:
        """Handle the next part of what has arrived, and begin no request after `until_s`.

        Returns whether there is more that can be handled now.
        """
        if not self._is_held_up:
            commands, self._backlog = self._backlog, ()
            if not commands:
                self._guarded(lambda: self._decode(until_s))
            else:
                self._guarded(lambda: self._dispatch(commands, until_s))
        self._read_or_not()
        return self._has_input and not self._is_held_up

    def become_link(self, hello: native.Hello) -> None:
        """Serve the sender of this accepted HELLO as a peer from now on."""
        self._gate.count_received(self, -self._held_bytes, 0)
        self.peer_id = hello.sender_id
        self._gate.count_received(self, self._held_bytes, self._held_bytes)
        self._transferred = self._gate.traffic.peers
        self._decoder.frame_bytes_max = self._limits.peer_frame_bytes_max
        self._gate.becomes_link(self, hello.sender_id, hello.incarnation)

    # -- called by the event loop ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection with the gate."""
        # uvloop's transports are not subclasses, but have all of its methods.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._limits.unsent_bytes_high)
        self._first_frame_since_s = self._active_at_s = self._gate.now_s()
        if name := transport.get_extra_info("peername"):
            self.address, self._peername = name[0], join_address(name[0], name[1])
        self._gate.enter(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Release the place, and all bytes that were held."""
        self._transport = None
        self._drop_input()
        self.unread_since_s = None  # later answers do not wait for a reader
        self._read_turns.forget(self)
        self._gate.leave(self)
        self._gate.count_received(self, -self._held_bytes, 0)
        self._release_unsent()

    def pause_writing(self) -> None:
        """Stop serving this connection until the other side reads its answers."""
        self.unread_since_s = self._gate.now_s()
        self._read_or_not()

    def resume_writing(self) -> None:
        """Handle the frames that were put off, then read again."""
        self._gate.begin_turn()
        self.unread_since_s = None
        self._restart_frame_time()
        if self._transport is not None:
            self._count_unsent(self._transport)
        self._read_turns.resume(self)
        self.go_on()

    def data_received(self, data: bytes) -> None:
        """Decode and dispatch; all frames of one read are dispatched together."""
        if self.peer_id is None:
            self._gate.begin_turn()
        else:
            self._gate.begin_peer_turn()
        self._active_at_s = self._gate.now_s()
        self._transferred.received_bytes += len(data)
        self._undecoded += data
        self._input_turns.ready(self)
        self._count_held()
        if self._has_input or self._over_quota is not None:
            self._read_or_not()

    @property
    def _input_turns(self) -> InputTurns:
        return self._gate.input_turns if self.peer_id is None else self._gate.peer_turns

    def _forget_turns(self) -> None:
        self._gate.input_turns.forget(self)
        self._gate.peer_turns.forget(self)

    @property
    def _has_input(self) -> bool:
        return bool(self._backlog or self._undecoded)

    @property
    def _is_held_up(self) -> bool:
        return (
            self.unread_since_s is not None
            or self.reads_waiting >= READS_WAITING_MAX
            or self._over_quota is not None
            or self._takes_no_more
        )

    def _restart_frame_time(self) -> None:
        """Restart the time limits on input: the connection was not read in the meantime."""
        now_s = self._active_at_s = self._gate.now_s()
        if self._frame_since_s is not None:
            self._frame_since_s = now_s

    def _use_quota(self, requests: int, received_bytes: int) -> None:
        """Stop reading for as long as the address of this client is above its quota."""
        excess_s = self._gate.quotas.use(self.address, requests, received_bytes)
        if excess_s > 0:
            loop = asyncio.get_running_loop()
            self._over_quota = loop.call_later(excess_s, self._within_quota)

    def _within_quota(self) -> None:
        self._over_quota = None
        self._restart_frame_time()
        self.go_on()

    def _drop_input(self) -> None:
        self._backlog, self._undecoded = (), b""
        if self._over_quota is not None:
            self._over_quota.cancel()
        self._forget_turns()

    def _decode(self, until_s: float) -> None:
        """Decode a slice of a client's bytes, or all of a peer's, and dispatch until `until_s`."""
        data, self._undecoded = self._undecoded, b""
        if self.peer_id is None:
            data, self._undecoded = data[:DECODED_BYTES], data[DECODED_BYTES:]
        commands = self._decoder.feed(data)
        if commands:
            self._first_frame_since_s = self._frame_since_s = None
        self._count_held()
        if commands:
            self._dispatch(commands, until_s)
        if self._gate.quotas.active and self.peer_id is None and self._over_quota is None:
            self._use_quota(len(commands), len(data))

    def _count_held(self) -> None:
        """Account for the bytes that wait to be decoded."""
        held_bytes = self._decoder.pending_bytes + len(self._undecoded)
        if held_bytes and self._frame_since_s is None:
            self._frame_since_s = self._active_at_s
        if held_bytes != self._held_bytes:
            change_bytes = held_bytes - self._held_bytes
            self._held_bytes = held_bytes
            self._gate.count_received(self, change_bytes, held_bytes)

    def _dispatch(self, commands: Sequence[RemotingCommand], until_s: float) -> None:
        self._handler.dispatch(commands, self, self._gate.only_hello(self), until_s)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except frames.FrameError as error:
            # Sound frames of the same read are not handled: they would exceed the turn's slice.
            self.cut(Reason.PROTOCOL, f"{error.reason}: {error}")
        except LinkRefusedError:
            self._refused_since_s = self._gate.now_s()
            self.close()  # once the answer, which says why, has been sent
        except RemoteProtocolError as error:
            self.cut(Reason.PROTOCOL, str(error))

    def _read_or_not(self) -> None:
        transport = self._transport
        if transport is None or self._is_ended or transport.is_closing():
            return
        if (
            self._waits_for_room
            or self.unread_since_s is not None
            or self._has_input
            or self._over_quota is not None
            or self._takes_no_more
        ):
            transport.pause_reading()
        else:
            transport.resume_reading()

    def _count_unsent(self, transport: asyncio.Transport) -> bool:
        """Count the bytes that the kernel has not accepted; return False if they are too many."""
        unsent_bytes = 0 if self._is_cut else transport.get_write_buffer_size()
        change_bytes = unsent_bytes - self.unsent_bytes
        self.unsent_bytes = unsent_bytes
        self._gate.count_unsent(change_bytes)
        return unsent_bytes <= self._limits.unsent_bytes_max

    def _release_unsent(self) -> None:
        """Stop counting this connection's unsent bytes."""
        released_bytes, self.unsent_bytes = self.unsent_bytes, 0
        self._gate.count_unsent(-released_bytes)
