"""The frames of one connection, handed to the service; each answer goes back to its connection."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from dledger_formats.json_objects import FormatError
from dledger_formats.protocol import (
    append_batch,
    canary,
    frames,
    membership_change,
    passing_on,
    producers,
    register,
    requests,
)
from dledger_formats.protocol.administration import AdminRequest
from dledger_formats.protocol.canary import AppendCanaryRequest
from dledger_formats.protocol.codes import DLedgerResponseCode, RequestCode, SystemCode
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.go_away import TAKES_GO_AWAY_FLAG
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
from dledger_node.errors import LinkRefusedError, RemoteProtocolError
from dledger_node.remoting import native, read_requests
from dledger_node.remoting.append_reader import (
    AppendBatchReader,
    AppendReader,
    IdempotentAppendReader,
    IdempotentBatchReader,
    UnfinishedBodyError,
)
from dledger_node.remoting.connection_views import RequestConnection, WritableConnection
from dledger_node.remoting.limits import Reason
from dledger_node.remoting.read_turns import READS_WAITING_MAX
from dledger_node.remoting.service import (
    AppendCall,
    BatchCall,
    IdempotentBatchCall,
    IdempotentCall,
    Reply,
    Service,
    answer_metadata,
    misdirected,
    system_answer,
)

RequestT = TypeVar("RequestT", bound=requests.Request)

_APPEND: Final = int(RequestCode.APPEND)
_UNUSUAL_FLAGS: Final = frames.RESPONSE_FLAG | passing_on.PASS_ON_FLAG | passing_on.PASSED_ON_FLAG
_TRANSFER: Final = (LeadershipTransferRequest, LeadershipTransferResponse)
_CHANGE_MEMBERSHIP: Final = (ChangeMembershipRequest, ChangeMembershipResponse)
_REGISTER_PRODUCER: Final = (RegisterProducerRequest, RegisterProducerResponse)
_READ_REGISTER: Final = (ReadRegisterRequest, ReadRegisterResponse)
_APPEND_CANARY: Final = (AppendCanaryRequest, requests.AppendEntryResponse)
_UNKNOWN_CODE: Final = SystemCode.REQUEST_CODE_NOT_SUPPORTED


class Dispatcher:
    """Decodes the requests of one connection and calls the service.

    The connection is an argument of each call and not kept: a reference cycle would outlive it.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._append_reader = AppendReader(partial(misdirected, service))
        self._idempotent_reader = IdempotentAppendReader(partial(misdirected, service))
        self._batch_reader = AppendBatchReader(partial(misdirected, service))
        self._idempotent_batch_reader = IdempotentBatchReader(partial(misdirected, service))

    def dispatch(
        self,
        commands: Sequence[RemotingCommand],
        connection: RequestConnection,
        only_hello: Reason | None,
        until_s: float,
    ) -> None:
        """Handle commands until answers are unread, too many reads wait, or `until_s` has come.

        Commands are handled in order; the time does not stop the first one. `only_hello` is the
        reason why a client may send nothing but HELLO on this connection; None if it may. Raises
        RemoteProtocolError for a message that no peer sends.
        """
        appends: list[AppendCall] = []
        idempotent: list[IdempotentCall] = []
        read, now_s = self._append_reader.read, time.perf_counter
        for number, command in enumerate(commands):
            if _holds_up(connection) or (number and now_s() >= until_s):
                connection.put_off(commands[number:])
                break
            if only_hello and not connection.peer_id and command.code != native.HELLO_CODE:
                connection.cut(only_hello, "too many connections; only a member may still connect")
                return
            try:
                # Thousands of appends may arrive per second, so this path avoids every extra call.
                if command.code == _APPEND and not command.flag & _UNUSUAL_FLAGS:
                    refused, body = read(command.body)
                    if refused is None:
                        appends.append(AppendCall(connection, command.opaque, body))
                    else:
                        self._refuse_append(command, connection, refused)
                elif command.code == native.MESSAGE_CODE:
                    self._peer_message(command, connection)
                elif not command.is_response:  # no response is expected here; Java ignores them too
                    self._answer(command, connection, appends, idempotent)
            except UnfinishedBodyError:
                connection.put_off(commands[number:])
                break
            except FormatError as error:
                connection.send(system_answer(command.opaque, SystemCode.SYSTEM_ERROR, str(error)))
        self._append(appends, idempotent)

    def _answer(
        self,
        command: RemotingCommand,
        connection: RequestConnection,
        appends: list[AppendCall],
        idempotent: list[IdempotentCall],
    ) -> None:
        service = self._service
        if command.flag & TAKES_GO_AWAY_FLAG:
            connection.takes_go_away = True
        match command.code:
            case _ if command.flag & passing_on.PASSED_ON_FLAG and service.passed_on.is_foreign(
                command
            ):
                self._refuse_append(command, connection, DLedgerResponseCode.NOT_LEADER)
            case code if code == _APPEND:
                self._append_or_pass_on(command, connection, appends)
            case producers.APPEND_IDEMPOTENT:
                self._append_idempotent(command, connection, idempotent)
            case append_batch.APPEND_BATCH:
                self._append_batch(command, connection)
            case producers.APPEND_IDEMPOTENT_BATCH:
                self._append_idempotent_batch(command, connection)
            case RequestCode.METADATA:
                _reply(connection, command.opaque, answer_metadata(service, command.body))
            case code if code in read_requests.CODES:
                read_requests.read(service, command, connection, self._append_reader.reads_numbers)
            case native.HELLO_CODE:
                self._hello(command, connection)
            case _:
                self._answer_one(command, connection)

    def _answer_one(self, command: RemotingCommand, connection: RequestConnection) -> None:
        """Handle a request that is not collected with others."""
        service = self._service
        match command.code:
            case RequestCode.LEADERSHIP_TRANSFER:
                self._ask(command, connection, *_TRANSFER, service.transfer_leadership)
            case membership_change.CHANGE_MEMBERSHIP:
                self._ask(command, connection, *_CHANGE_MEMBERSHIP, service.change_membership)
            case producers.REGISTER_PRODUCER:
                self._ask(command, connection, *_REGISTER_PRODUCER, service.register_producer)
            case register.READ_REGISTER:
                self._ask(command, connection, *_READ_REGISTER, service.read_register)
            case canary.APPEND_CANARY:
                self._ask(command, connection, *_APPEND_CANARY, service.append_canary)
            case code if connection.peer_id is not None and code in service.peer_requests:
                service.peer_requests[code](command, connection)
            case code:
                remark = f"request code {code} is not supported"
                connection.send(system_answer(command.opaque, _UNKNOWN_CODE, remark))

    def _append(self, appends: list[AppendCall], idempotent: list[IdempotentCall]) -> None:
        service = self._service.appends
        if appends:
            service.append(appends)
        if idempotent:
            service.append_idempotent(idempotent)

    # -- appends ---------------------------------------------------------------------------------

    def _append_or_pass_on(
        self, command: RemotingCommand, connection: RequestConnection, calls: list[AppendCall]
    ) -> None:
        refused, body = self._append_reader.read(command.body)
        if refused is not None:
            self._refuse_append(command, connection, refused)
        else:
            call = AppendCall(connection, command.opaque, body)
            if not self._pass_on(command, call):
                calls.append(call)

    def _append_idempotent(
        self, command: RemotingCommand, connection: RequestConnection, calls: list[IdempotentCall]
    ) -> None:
        refused, body, producer, sequence = self._idempotent_reader.read(command.body)
        if refused is None:
            calls.append(IdempotentCall(connection, command.opaque, body, producer, sequence))
        else:
            self._refuse_append(command, connection, refused)

    def _append_batch(self, command: RemotingCommand, connection: RequestConnection) -> None:
        """Hand a batch over at once: collected batches would take their time after the slice."""
        refused, bodies = self._batch_reader.read(command.body)
        if refused is not None:
            self._refuse_append(command, connection, refused)
        else:
            call = BatchCall(connection, command.opaque, bodies)
            if not self._pass_on(command, call):
                self._service.appends.append_batch(call)

    def _pass_on(self, command: RemotingCommand, call: AppendCall | BatchCall) -> bool:
        """Pass a plain append on to the leader; False if this member is to take or refuse it."""
        passed_on = self._service.passed_on
        if not command.flag & passing_on.PASS_ON_FLAG or passed_on.leader_id is None:
            return False
        passed_on.pass_on(call)
        return True

    def _append_idempotent_batch(
        self, command: RemotingCommand, connection: RequestConnection
    ) -> None:
        refused, envelope, bodies = self._idempotent_batch_reader.read(command.body)
        if refused is not None:
            self._refuse_append(command, connection, refused)
            return
        producer, sequence = envelope.producer, envelope.sequence
        call = IdempotentBatchCall(connection, command.opaque, bodies, producer, sequence)
        self._service.appends.append_batch(call)

    def _refuse_append(
        self, command: RemotingCommand, connection: RequestConnection, code: DLedgerResponseCode
    ) -> None:
        answer = requests.AppendEntryResponse(code=code, group=self._service.group)
        _reply(connection, command.opaque, answer)

    # -- all other requests ----------------------------------------------------------------------

    def _ask(
        self,
        command: RemotingCommand,
        connection: RequestConnection,
        request_type: type[RequestT],
        response_type: type[requests.Response],
        serve: Callable[[RequestT, Reply], None],
    ) -> None:
        """Decode a request and let the service answer it, now or later."""
        request = request_type.from_json(command.body)
        reply = partial(_reply, connection, command.opaque)
        refused = misdirected(self._service, request)
        if refused is not None:
            reply(response_type(code=refused, group=self._service.group))
        elif not (
            isinstance(request, AdminRequest) and self._refuse_admin(request, command, connection)
        ):
            serve(request, reply)

    def _refuse_admin(
        self, request: AdminRequest, command: RemotingCommand, connection: RequestConnection
    ) -> bool:
        """Refuse a request that may not change the group; return False if it may.

        The frame's remark says why, since Java's responses have no field for it.
        """
        refused = self._service.refuse_admin(request, connection.address)
        if refused is None:
            return False
        response = requests.Response(code=refused.code, group=self._service.group)
        connection.send(_answer(command.opaque, response, refused.remark))
        return True

    # -- peers -----------------------------------------------------------------------------------

    def _peer_message(self, command: RemotingCommand, connection: RequestConnection) -> None:
        if connection.peer_id is None:
            raise RemoteProtocolError("a message came before HELLO")
        message = native.decode(command.body, connection.peer_id, self._service.self_id)
        self._service.peers.receive(message)

    def _hello(self, command: RemotingCommand, connection: RequestConnection) -> None:
        if connection.peer_id is not None:
            raise RemoteProtocolError(f"{connection.peer_id} sent a second HELLO")
        hello = native.decode_hello(command.body)
        reason = self._service.peers.refuse_hello(hello)
        code = DLedgerResponseCode.SUCCESS if reason is None else DLedgerResponseCode.UNKNOWN_MEMBER
        local_id = self._service.self_id
        response = requests.Response(code=code, group=self._service.group, local_id=local_id)
        connection.send(_answer(command.opaque, response, reason))
        if reason is not None:
            detail = f"{hello.sender_id!r} may not open a link: {reason!r}"
            self._service.gate.count_closed(connection, Reason.LINK_REFUSED, detail)
            raise LinkRefusedError(reason)
        connection.become_link(hello)


def _holds_up(connection: RequestConnection) -> bool:
    """Return whether the other side must first read its answers, or too many reads wait."""
    return connection.unread_since_s is not None or connection.reads_waiting >= READS_WAITING_MAX


def _reply(connection: WritableConnection, opaque: int, answer: requests.Message) -> None:
    connection.send(frames.encode_responses([(opaque, answer.to_json())]))


def _answer(opaque: int, answer: requests.Message, remark: str | None) -> bytes:
    """Return the frame of an answer with a remark."""
    return frames.encode(
        RemotingCommand(
            code=SystemCode.SUCCESS,
            opaque=opaque,
            flag=frames.RESPONSE_FLAG,
            remark=remark,
            body=answer.to_json(),
        )
    )
