"""One accepted connection: a client, or a peer's link. Frames in, calls on a `Service` out.

Whatever comes from outside has a limit. Bytes that no sane peer sends close the connection, are
counted, and harm nobody else.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, cast

from dledger_formats import follow, frames, requests
from dledger_formats.frames import RemotingCommand
from dledger_formats.json_objects import FormatError
from dledger_formats.requests import DLedgerResponseCode, RequestCode, SystemCode
from dledger_node.errors import RemoteProtocolError
from dledger_node.raft.messages import Message
from dledger_node.remoting import native

logger = logging.getLogger(__name__)

FRAME_BYTES_MAX: Final = frames.FRAME_BYTES_MAX
WRITE_BUFFER_BYTES_MAX: Final = 64 << 20
"""A client that lets this much wait, unread, is cut off."""


@dataclass(frozen=True, slots=True)
class AppendCall:
    """An APPEND, and the connection on which its answer goes back."""

    connection: "Connection"
    opaque: int
    body: bytes


class Service(Protocol):
    """What connections ask of the server."""

    group: str
    self_id: str

    def append(self, calls: list[AppendCall]) -> None:
        """Take appends; each is answered on its connection."""

    def metadata(self) -> requests.MetadataResponse:
        """Who is in the group, and who leads it."""

    def get(self, request: requests.GetEntriesRequest) -> requests.GetEntriesResponse:
        """Read committed entries."""

    def follow(
        self, connection: "Connection", opaque: int, request: follow.FollowRequest
    ) -> follow.FollowResponse | None:
        """Read committed entries; None when the answer is sent once there are some."""

    def refuse_hello(self, hello: native.Hello) -> str | None:
        """Say why this caller may not open a link; None when it may."""

    def peer_message(self, message: Message) -> None:
        """Take a message of the peer whose HELLO was accepted; RemoteProtocolError if it is bad."""

    def opened(self, connection: "Connection") -> bool:
        """Count a connection; False when there are too many."""

    def closed(self, connection: "Connection") -> None:
        """Forget a connection."""

    def protocol_error(self, peer: str, error: Exception) -> None:
        """Count a connection that had to be closed."""


class Connection(asyncio.Protocol):
    """One accepted connection."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._decoder = frames.FrameDecoder(FRAME_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._peer_id: str | None = None
        self.peername = "?"
        self.active_at_s = 0.0
        """Loop time of the last byte received, for the sweep of idle connections."""

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of a frame that has not come to its end."""
        return self._decoder.pending_bytes

    def send(self, data: bytes) -> None:
        """Write whole frames; a client that does not read is cut off."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        if transport.get_write_buffer_size() > WRITE_BUFFER_BYTES_MAX:
            logger.warning("%s reads no answers; its connection is closed", self.peername)
            transport.abort()

    def close(self) -> None:
        """Close once what was written is sent."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register, unless there are too many."""
        # uvloop's transports are no subclasses, but have all of its methods.
        self._transport = cast("asyncio.Transport", transport)
        self.active_at_s = asyncio.get_running_loop().time()
        name = transport.get_extra_info("peername")
        self.peername = f"{name[0]}:{name[1]}" if name else "?"
        if not self._service.opened(self):
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Unregister."""
        self._service.closed(self)

    def data_received(self, data: bytes) -> None:
        """Decode and dispatch; everything that came in one read is handed over together."""
        self.active_at_s = asyncio.get_running_loop().time()
        try:
            self._dispatch(self._decoder.feed(data))
        except (frames.FrameError, RemoteProtocolError) as error:
            if isinstance(error, frames.FrameError):
                self._dispatch(error.before)
            self._service.protocol_error(self.peername, error)
            if self._transport is not None:
                self._transport.abort()

    def _dispatch(self, commands: Sequence[RemotingCommand]) -> None:
        appends: list[AppendCall] = []
        for command in commands:
            if command.code == RequestCode.APPEND and not command.is_response:
                self._collect_append(command, appends)
            elif command.code == native.MESSAGE_CODE:
                self._peer_message(command)
            elif not command.is_response:  # an answer that nobody waits for, as Java ignores it
                self._answer(command)
        if appends:
            self._service.append(appends)

    def _peer_message(self, command: RemotingCommand) -> None:
        if self._peer_id is None:
            raise RemoteProtocolError("a message came before HELLO")
        message = native.decode(command.body, self._peer_id, self._service.self_id)
        self._service.peer_message(message)

    def _collect_append(self, command: RemotingCommand, appends: list[AppendCall]) -> None:
        try:
            request = requests.AppendEntryRequest.from_json(command.body)
        except FormatError as error:
            self._system_answer(command, SystemCode.SYSTEM_ERROR, str(error))
            return
        refused = self._misdirected(request)
        if refused is not None:
            response = requests.AppendEntryResponse(code=refused, group=self._service.group)
            self.send(frames.encode_responses([(command.opaque, response.to_json())]))
            return
        appends.append(AppendCall(self, command.opaque, request.body))

    def _answer(self, command: RemotingCommand) -> None:
        """Answer everything that needs no waiting."""
        try:
            if command.code == RequestCode.METADATA:
                answer: requests.Message | None = self._metadata(command)
            elif command.code == RequestCode.GET:
                answer = self._get(command)
            elif command.code == follow.FOLLOW:
                answer = self._follow(command)
            elif command.code == native.HELLO_CODE:
                self._hello(command)
                return
            else:
                remark = f"request code {command.code} is not supported"
                self._system_answer(command, SystemCode.REQUEST_CODE_NOT_SUPPORTED, remark)
                return
        except FormatError as error:
            self._system_answer(command, SystemCode.SYSTEM_ERROR, str(error))
            return
        if answer is not None:
            self.send(frames.encode_responses([(command.opaque, answer.to_json())]))

    def _metadata(self, command: RemotingCommand) -> requests.Message:
        request = requests.MetadataRequest.from_json(command.body)
        # Without a remote id, the caller asks whom it has reached: a Service's address names
        # nobody.
        refused = self._misdirected(request) if request.remote_id else self._foreign(request)
        if refused is not None:
            return requests.MetadataResponse(code=refused, group=self._service.group)
        return self._service.metadata()

    def _get(self, command: RemotingCommand) -> requests.Message:
        request = requests.GetEntriesRequest.from_json(command.body)
        refused = self._misdirected(request)
        if refused is not None:
            return requests.GetEntriesResponse(code=refused, group=self._service.group)
        return self._service.get(request)

    def _follow(self, command: RemotingCommand) -> requests.Message | None:
        request = follow.FollowRequest.from_json(command.body)
        refused = self._misdirected(request)
        if refused is not None:
            return follow.FollowResponse(code=refused, group=self._service.group)
        return self._service.follow(self, command.opaque, request)

    def _foreign(self, request: requests.Message) -> DLedgerResponseCode | None:
        if request.group != self._service.group:
            return DLedgerResponseCode.UNKNOWN_GROUP
        return None

    def _misdirected(self, request: requests.Message) -> DLedgerResponseCode | None:
        """Check group and member first, as Java does, so that no answer comes from a stranger."""
        if request.remote_id != self._service.self_id:
            return DLedgerResponseCode.UNKNOWN_MEMBER
        return self._foreign(request)

    def _hello(self, command: RemotingCommand) -> None:
        hello = native.decode_hello(command.body)
        reason = self._service.refuse_hello(hello)
        code = DLedgerResponseCode.SUCCESS if reason is None else DLedgerResponseCode.UNKNOWN_MEMBER
        response = requests.Message(
            code=code, group=self._service.group, local_id=self._service.self_id
        )
        answer = RemotingCommand(
            code=SystemCode.SUCCESS,
            opaque=command.opaque,
            flag=frames.RESPONSE_FLAG,
            remark=reason,
            body=response.to_json(),
        )
        self.send(frames.encode(answer))
        if reason is None:
            self._peer_id = hello.sender_id
        else:
            logger.warning(
                "refused a link from %s at %s: %s", hello.sender_id, self.peername, reason
            )

    def _system_answer(self, command: RemotingCommand, code: SystemCode, remark: str) -> None:
        answer = RemotingCommand(
            code=code, opaque=command.opaque, flag=frames.RESPONSE_FLAG, remark=remark[:512]
        )
        self.send(frames.encode(answer))
