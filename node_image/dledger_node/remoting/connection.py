"""One accepted connection: a client, or a peer's link. Frames in, calls on a `Service` out.

Whatever comes from outside has a limit (`limits`). Bytes that no sane peer sends close the
connection, are counted, and harm nobody else. While its own answers lie unread, nothing more is
read from a connection or done for it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar, cast

from dledger_formats import json_objects
from dledger_formats.json_objects import FormatError
from dledger_formats.protocol import (
    append_batch,
    follow,
    frames,
    membership_change,
    producers,
    register,
    requests,
)
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.leadership_transfer import (
    LeadershipTransferRequest,
    LeadershipTransferResponse,
)
from dledger_formats.protocol.membership_change import (
    ChangeMembershipRequest,
    ChangeMembershipResponse,
)
from dledger_formats.protocol.producers import RegisterProducerRequest, RegisterProducerResponse
from dledger_formats.protocol.register import ReadRegisterRequest, ReadRegisterResponse
from dledger_formats.protocol.requests import DLedgerResponseCode, RequestCode, SystemCode
from dledger_node.errors import RemoteProtocolError
from dledger_node.remoting import native
from dledger_node.remoting.append_reader import (
    AppendBatchReader,
    AppendReader,
    IdempotentAppendReader,
)
from dledger_node.remoting.limits import Reason
from dledger_node.remoting.service import (
    AppendCall,
    BatchCall,
    IdempotentCall,
    Reply,
    Service,
    answer_metadata,
    misdirected,
    system_answer,
)

logger = logging.getLogger(__name__)

Request = TypeVar("Request", bound=requests.Message)

JAVA: Final = "JAVA"
ANSWER_BYTES_MAX: Final = frames.FRAME_BYTES_MAX - frames.HEADER_BYTES_MAX
_APPEND: Final = int(RequestCode.APPEND)
_TRANSFER: Final = (LeadershipTransferRequest, LeadershipTransferResponse)
_CHANGE_MEMBERSHIP: Final = (ChangeMembershipRequest, ChangeMembershipResponse)
_REGISTER_PRODUCER: Final = (RegisterProducerRequest, RegisterProducerResponse)
_READ_REGISTER: Final = (ReadRegisterRequest, ReadRegisterResponse)
_UNKNOWN_CODE: Final = SystemCode.REQUEST_CODE_NOT_SUPPORTED
_NO_PLACE: Final = "no place is left, but for members"


class Connection(asyncio.Protocol):
    """One accepted connection."""

    def __init__(self, service: Service) -> None:
        self.peer_id: str | None = None
        """The member that its HELLO named; None for clients and strangers."""
        self.address = "?"
        """Of the other side's host."""
        self._service = service
        self._gate = service.gate
        self._limits = service.gate.limits
        self._decoder = frames.FrameDecoder(self._limits.client_frame_bytes_max)
        # They know the service and not this connection, which no cycle may keep when it is closed.
        self._append_reader = AppendReader(partial(misdirected, service))
        self._once_reader = IdempotentAppendReader(partial(misdirected, service))
        self._batch_reader = AppendBatchReader(partial(misdirected, service))
        self._transport: asyncio.Transport | None = None
        self._peername = "?"
        # Whole frames of the last read, which wait until the answers so far are being read.
        self._backlog: Sequence[RemotingCommand] = ()
        self._held_bytes = self._unsent_bytes = 0
        self._waits_for_room = False
        self._active_at_s = 0.0
        # Since when it owes these; None when it does not.
        self._first_frame_since_s: float | None = None
        self._frame_since_s: float | None = None
        self._unread_since_s: float | None = None

    def __str__(self) -> str:
        return f"{self.peer_id} at {self._peername}" if self.peer_id else self._peername

    def send(self, data: bytes) -> None:
        """Write whole frames; a client that does not read them is cut off in the end."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        if not self._count_unsent(transport):
            self.cut(Reason.UNREAD, f"{self._unsent_bytes} bytes of answers wait for it")

    def close(self) -> None:
        """Close once what was written is sent; what was read and not answered is forgotten."""
        self._backlog = ()
        if self._transport is not None:
            self._transport.close()

    # -- the gate calls these --------------------------------------------------------------------

    def overdue(self, now_s: float) -> Reason | None:
        """Which limit of time it has exceeded."""
        if self._transport is not None and self._unsent_bytes:
            self._count_unsent(self._transport)
        limits = self._limits
        unread = self._unread_since_s is not None
        for since_s, limit_s, reason in (
            (self._first_frame_since_s, limits.first_frame_s, Reason.FIRST_FRAME),
            (None if unread else self._frame_since_s, limits.frame_s, Reason.FRAME),
            (self._unread_since_s, limits.unread_s, Reason.UNREAD),
            (None if self.peer_id else self._active_at_s, limits.idle_s, Reason.IDLE),
        ):
            if since_s is not None and now_s - since_s >= limit_s:
                return reason
        return None

    def cut(self, reason: Reason, detail: str) -> None:
        """Close at once; what waits to be sent is lost."""
        self._backlog = ()
        if self._transport is not None and not self._transport.is_closing():
            self._gate.count_closed(self, reason, detail)
            self._transport.abort()

    def pause_for_room(self) -> None:
        """Read nothing until `go_on`: all connections together hold too much."""
        self._waits_for_room = True
        self._read_or_not()

    def go_on(self) -> None:
        """Read again."""
        self._waits_for_room = False
        self._read_or_not()

    # -- the loop calls these --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a place."""
        # uvloop's transports are no subclasses, but have all of its methods.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._limits.unsent_bytes_high)
        self._first_frame_since_s = self._active_at_s = self._gate.now_s()
        name = transport.get_extra_info("peername")
        if name:
            self.address, self._peername = name[0], f"{name[0]}:{name[1]}"
        self._gate.enter(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Give the place, and all that was held, back."""
        self._transport = None
        self._backlog = ()
        self._gate.leave(self)
        self._gate.count_received(self, -self._held_bytes, 0)
        self._gate.count_unsent(-self._unsent_bytes)

    def pause_writing(self) -> None:
        """Do nothing more for who does not read."""
        self._unread_since_s = self._gate.now_s()
        self._read_or_not()

    def resume_writing(self) -> None:
        """Go on with what has come, then with what comes."""
        self._unread_since_s = None
        now_s = self._active_at_s = self._gate.now_s()
        if self._frame_since_s is not None:
            self._frame_since_s = now_s
        if self._transport is not None:
            self._count_unsent(self._transport)
        commands, self._backlog = self._backlog, ()
        self._guarded(lambda: self._dispatch(commands))
        self._read_or_not()

    def data_received(self, data: bytes) -> None:
        """Decode and dispatch; everything that came in one read is handed over together."""
        self._active_at_s = self._gate.now_s()
        self._guarded(lambda: self._take(data))

    # -- inside ----------------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        commands = self._decoder.feed(data)
        held_bytes = self._decoder.pending_bytes
        if commands:
            self._first_frame_since_s = self._frame_since_s = None
        if held_bytes and self._frame_since_s is None:
            self._frame_since_s = self._active_at_s
        if held_bytes != self._held_bytes:
            change_bytes = held_bytes - self._held_bytes
            self._held_bytes = held_bytes
            self._gate.count_received(self, change_bytes, held_bytes)
        if commands:
            self._dispatch(commands)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except frames.FrameError as error:
            before = error.before
            self._guarded(lambda: self._dispatch(before))
            self.cut(Reason.PROTOCOL, f"{error.reason}: {error}")
        except RemoteProtocolError as error:
            self.cut(Reason.PROTOCOL, str(error))

    def _read_or_not(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._waits_for_room or self._unread_since_s is not None:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def _count_unsent(self, transport: asyncio.Transport) -> bool:
        """Account for what the kernel has not taken; False when it is too much."""
        unsent_bytes = transport.get_write_buffer_size()
        change_bytes = unsent_bytes - self._unsent_bytes
        self._unsent_bytes = unsent_bytes
        if unsent_bytes > self._limits.unsent_bytes_max:
            return False
        fits = self._gate.count_unsent(change_bytes)
        return fits or unsent_bytes <= self._limits.unsent_bytes_high

    def _dispatch(self, commands: Sequence[RemotingCommand]) -> None:
        appends: list[AppendCall] = []
        once: list[IdempotentCall] = []
        batches: list[BatchCall] = []
        read, no_place = self._append_reader.read, self._gate.may_ask(self)
        for number, command in enumerate(commands):
            if self._unread_since_s is not None:
                self._backlog = commands[number:]
                break
            if no_place and not self.peer_id and command.code != native.HELLO_CODE:
                self.cut(no_place, _NO_PLACE)
                return
            try:
                # Appends come by the thousand: no call but those that do the work.
                if command.code == _APPEND and not command.flag & frames.RESPONSE_FLAG:
                    refused, body = read(command.body)
                    if refused is None:
                        appends.append(AppendCall(self, command.opaque, body))
                    else:
                        self._refuse_append(command, refused)
                elif command.code == native.MESSAGE_CODE:
                    self._peer_message(command)
                elif not command.is_response:  # which nobody waits for, and Java ignores too
                    self._answer(command, once, batches)
            except FormatError as error:
                self.send(system_answer(command.opaque, SystemCode.SYSTEM_ERROR, str(error)))
        if appends:
            self._service.appends.append(appends)
        if once:
            self._service.appends.append_idempotent(once)
        if batches:
            self._service.appends.append_batches(batches)

    def _append_once(self, command: RemotingCommand, calls: list[IdempotentCall]) -> None:
        refused, body, producer, sequence = self._once_reader.read(command.body)
        if refused is None:
            calls.append(IdempotentCall(self, command.opaque, body, producer, sequence))
        else:
            self._refuse_append(command, refused)

    def _append_batch(self, command: RemotingCommand, calls: list[BatchCall]) -> None:
        refused, bodies = self._batch_reader.read(command.body)
        if refused is None:
            calls.append(BatchCall(self, command.opaque, bodies))
        else:
            self._refuse_append(command, refused)

    def _peer_message(self, command: RemotingCommand) -> None:
        if self.peer_id is None:
            raise RemoteProtocolError("a message came before HELLO")
        message = native.decode(command.body, self.peer_id, self._service.self_id)
        self._service.peers.receive(message)

    def _refuse_append(self, command: RemotingCommand, code: DLedgerResponseCode) -> None:
        answer = requests.AppendEntryResponse(code=code, group=self._service.group)
        self._reply(command.opaque, answer)

    def _answer(
        self, command: RemotingCommand, once: list[IdempotentCall], batches: list[BatchCall]
    ) -> None:
        match command.code:
            case producers.APPEND_IDEMPOTENT:
                self._append_once(command, once)
            case append_batch.APPEND_BATCH:
                self._append_batch(command, batches)
            case RequestCode.METADATA:
                self._reply(command.opaque, answer_metadata(self._service, command.body))
            case RequestCode.GET:
                self._get(command)
            case RequestCode.LEADERSHIP_TRANSFER:
                self._ask(command, *_TRANSFER, self._service.transfer_leadership)
            case follow.FOLLOW:
                self._follow(command)
            case membership_change.CHANGE_MEMBERSHIP:
                self._ask(command, *_CHANGE_MEMBERSHIP, self._service.change_membership)
            case producers.REGISTER_PRODUCER:
                self._ask(command, *_REGISTER_PRODUCER, self._service.register_producer)
            case register.READ_REGISTER:
                self._ask(command, *_READ_REGISTER, self._service.read_register)
            case native.HELLO_CODE:
                self._hello(command)
            case code:
                remark = f"request code {code} is not supported"
                self.send(system_answer(command.opaque, _UNKNOWN_CODE, remark))

    def _reply(self, opaque: int, answer: requests.Message) -> None:
        self.send(frames.encode_responses([(opaque, answer.to_json())]))

    def _get(self, command: RemotingCommand) -> None:
        json_objects.parse(command.body)
        request = requests.GetEntriesRequest.from_json(command.body)
        reply = partial(self._reply_entries, command)
        refused = misdirected(self._service, request)
        if refused is not None:
            reply(requests.GetEntriesResponse(code=refused, group=self._service.group))
        else:
            self._service.get(request, reply)

    def _reply_entries(self, command: RemotingCommand, answer: requests.Message) -> None:
        """Answer a GET in the form that the client reads.

        A Java client that has not appended yet may be a 0.4.3, which reads numbers alone, and
        every other Java reads them too. They are up to five bytes for one: what is too long for a
        frame so goes as base64, which that client would have to ask another version for.
        """
        reads_numbers = self._append_reader.reads_numbers
        if reads_numbers is None:
            reads_numbers = command.language == JAVA
        body = answer.to_json(bytes_as_numbers=reads_numbers)
        if len(body) > ANSWER_BYTES_MAX:
            body = answer.to_json()
        self.send(frames.encode_responses([(command.opaque, body)]))

    def _ask(
        self,
        command: RemotingCommand,
        request_type: type[Request],
        response_type: type[requests.Message],
        serve: Callable[[Request, Reply], None],
    ) -> None:
        """Have the server answer, now or later, what is meant for it."""
        json_objects.parse(command.body)
        request = request_type.from_json(command.body)
        reply = partial(self._reply, command.opaque)
        refused = misdirected(self._service, request)
        if refused is not None:
            reply(response_type(code=refused, group=self._service.group))
        else:
            serve(request, reply)

    def _follow(self, command: RemotingCommand) -> None:
        json_objects.parse(command.body)
        request = follow.FollowRequest.from_json(command.body)
        refused = misdirected(self._service, request)
        answer: requests.Message | None
        if refused is not None:
            answer = follow.FollowResponse(code=refused, group=self._service.group)
        else:
            answer = self._service.follow(self, command.opaque, request)
        if answer is not None:
            self._reply(command.opaque, answer)

    def _hello(self, command: RemotingCommand) -> None:
        if self.peer_id is not None:
            raise RemoteProtocolError(f"{self.peer_id} said HELLO a second time")
        hello = native.decode_hello(command.body)
        reason = self._service.peers.refuse_hello(hello)
        code = DLedgerResponseCode.SUCCESS if reason is None else DLedgerResponseCode.UNKNOWN_MEMBER
        local_id = self._service.self_id
        response = requests.Message(code=code, group=self._service.group, local_id=local_id)
        answer = RemotingCommand(
            code=SystemCode.SUCCESS,
            opaque=command.opaque,
            flag=frames.RESPONSE_FLAG,
            remark=reason,
            body=response.to_json(),
        )
        self.send(frames.encode(answer))
        if reason is None:
            self.peer_id = hello.sender_id
            self._decoder.frame_bytes_max = self._limits.peer_frame_bytes_max
            self._gate.becomes_link(self, hello.sender_id, hello.life)
        else:
            logger.warning("refused a link from %s at %s: %s", hello.sender_id, self, reason)
