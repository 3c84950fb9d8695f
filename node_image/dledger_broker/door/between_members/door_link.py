"""The connection from a member to the leader, for the requests of its clients.

Each request ends exactly once: with its answer, or with the end of the connection. Requests that
are sent before the connection is made wait for it.

A link that is given up is reset. Otherwise the kernel would go on sending, and a request that was
sent to the next leader as well could take effect a second time, long after it was answered.
"""

import asyncio
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from dledger_broker.door.between_members import door_frames
from dledger_broker.door.between_members.door_frames import DoorAnswer, DoorRequest
from dledger_formats.json_objects import FormatError
from dledger_formats.protocol.codes import SystemCode
from dledger_formats.protocol.frames import FrameDecoder, FrameError, RemotingCommand
from dledger_node.remoting.dialed_link import DialedLink

_RESET_AT_ONCE: Final = struct.pack("ii", 1, 0)
"""The value of SO_LINGER with which a closed connection drops what it has not sent."""
REQUESTS_MAX: Final = 128
BYTES_MAX: Final = 256 * 1024
"""The most requests and bytes in one frame; a single request may have more bytes."""


class DoorLinkOwner(Protocol):
    """The owner of a link."""

    def heard(self) -> None:
        """Record that the other member sends something, such as its answer to the HELLO."""

    def answered(self, answers: Sequence[DoorAnswer]) -> None:
        """Take the answers of one frame."""

    def refused(self, requests: range) -> None:
        """Record that the other member does not take these requests: they had no effect."""

    def link_lost(self, link: "DoorLink") -> None:
        """Record that the connection is gone, or could not be made."""


class DoorLink(DialedLink):
    """A connection. It must not be used after it has called `DoorLinkOwner.link_lost`."""

    def __init__(self, owner: DoorLinkOwner, leader_id: str, term: int) -> None:
        super().__init__()
        self.leader_id = leader_id
        self.term = term
        """The term of the leader."""
        self._owner = owner
        self._decoder = FrameDecoder()
        self._next: list[DoorRequest] = []
        self._next_bytes = 0
        self._frames: dict[int, range] = {}
        """The requests of each frame, by its opaque, until the first answer proves that the other
        member takes requests.
        """
        self._last_frame = 0
        self._has_answers = False

    def open(self, host: str, port: int, hello: bytes) -> None:
        """Begin to connect; `hello` introduces this member."""
        self._unsent.insert(0, hello)
        self._dial(host, port)

    def send(self, request: DoorRequest, size: int) -> None:
        """Send a request at the end of this turn of the event loop; `size` is its size as
        `request_bytes` counts.
        """
        if len(self._next) >= REQUESTS_MAX or self._next_bytes + size > BYTES_MAX:
            self._flush()
        if not self._next:
            asyncio.get_running_loop().call_soon(self._flush)
        self._next.append(request)
        self._next_bytes += size

    def abort(self) -> None:
        """Close at once, without a call to the owner."""
        self._has_ended = True
        self._drop()

    def _ended(self) -> None:
        self._owner.link_lost(self)

    def _flush(self) -> None:
        requests, self._next = self._next, []
        self._next_bytes = 0
        if not requests or self._has_ended:
            return
        self._last_frame += 1
        frame = door_frames.encode_requests(requests, self._last_frame)
        if not self._has_answers:
            self._frames[self._last_frame] = range(requests[0].number, requests[-1].number + 1)
        self._write(frame)

    def _made(self, transport: asyncio.Transport) -> None:
        link_socket = transport.get_extra_info("socket")
        if link_socket is not None:
            link_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_ONCE)

    # -- called by the event loop ----------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Hand the answers to the owner."""
        if self._has_ended:
            return
        self._owner.heard()
        try:
            for command in self._decoder.feed(data):
                if self._has_ended:
                    return
                if command.code == door_frames.ANSWERS_CODE:
                    self._has_answers = True
                    self._frames.clear()
                    self._owner.answered(door_frames.decode_answers(command.body))
                elif command.is_response and command.opaque:  # 0 belongs to the HELLO
                    self._refused(command)
        except (FrameError, FormatError):
            if self._transport is not None:
                self._transport.abort()

    def _refused(self, command: RemotingCommand) -> None:
        """Handle an answer to a whole frame: the other member does not know such frames."""
        requests = self._frames.pop(command.opaque, None)
        if requests is not None and command.code == SystemCode.REQUEST_CODE_NOT_SUPPORTED:
            self._owner.refused(requests)
        elif self._transport is not None:
            self._transport.abort()


OpenLink: TypeAlias = Callable[[DoorLinkOwner, str, int], DoorLink | None]
"""Begins to connect to the leader of a term; returns None if its address is not known."""
