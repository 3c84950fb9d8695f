"""What connections ask of the server, and how they are answered."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from dledger_formats import json_objects
from dledger_formats.protocol import follow, frames, requests
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.leadership_transfer import LeadershipTransferRequest
from dledger_formats.protocol.membership_change import ChangeMembershipRequest
from dledger_formats.protocol.producers import RegisterProducerRequest
from dledger_formats.protocol.register import ReadRegisterRequest
from dledger_formats.protocol.requests import DLedgerResponseCode, SystemCode
from dledger_node.remoting import native
from dledger_node.remoting.gate import Gate

if TYPE_CHECKING:
    from dledger_node.remoting.connection import Connection

Reply: TypeAlias = Callable[[requests.Message], None]
"""Sends the answer to one request, now or later; a connection that is gone by then ignores it."""


class ClientCall(msgspec.Struct, frozen=True, gc=False):
    """Where the answer to an append goes. Structs, for their speed."""

    connection: "Connection"
    opaque: int


class AppendCall(ClientCall, frozen=True, gc=False):
    """An APPEND."""

    body: bytes


class IdempotentCall(AppendCall, frozen=True, gc=False):
    """An APPEND_IDEMPOTENT: whose it is, and its sequence among them."""

    producer: int
    sequence: int


class BatchCall(ClientCall, frozen=True, gc=False):
    """An APPEND_BATCH: bodies that become entries one behind the other, with one answer."""

    bodies: Sequence[bytes]


class AppendService(Protocol):
    """Takes appends; each is answered on its connection."""

    def append(self, calls: list[AppendCall]) -> None:
        """Take APPENDs."""

    def append_idempotent(self, calls: list[IdempotentCall]) -> None:
        """Take APPEND_IDEMPOTENTs, whose entries may be in the log already."""

    def append_batches(self, calls: list[BatchCall]) -> None:
        """Take APPEND_BATCHes; each gets one answer for all of its bodies."""


class PeerService(Protocol):
    """Receives from the peers."""

    def refuse_hello(self, hello: native.Hello) -> str | None:
        """Return why the sender must not open a link; None if it may."""

    def receive(self, message: native.PeerMessage) -> None:
        """Take a message of the peer whose HELLO was accepted.

        Raises RemoteProtocolError if no sane peer sends it.
        """


class Service(Protocol):
    """What connections ask of the member."""

    @property
    def group(self) -> str:
        """Name of the group."""

    @property
    def self_id(self) -> str:
        """Id of the member."""

    @property
    def gate(self) -> Gate:
        """Counts and limits the connections."""

    @property
    def appends(self) -> AppendService:
        """Takes the appends."""

    @property
    def peers(self) -> PeerService:
        """Receives from the peers."""

    def register_producer(self, request: RegisterProducerRequest, reply: Reply) -> None:
        """Register a client that numbers its appends."""

    def metadata(self) -> requests.MetadataResponse:
        """Return the members of the group and its leader."""

    def get(self, request: requests.GetEntriesRequest, reply: Reply) -> None:
        """Read committed entries."""

    def transfer_leadership(self, request: LeadershipTransferRequest, reply: Reply) -> None:
        """Transfer the leadership."""

    def change_membership(self, request: ChangeMembershipRequest, reply: Reply) -> None:
        """Change the membership of the group."""

    def read_register(self, request: ReadRegisterRequest, reply: Reply) -> None:
        """Read a value of the register."""

    def follow(
        self, connection: "Connection", opaque: int, request: follow.FollowRequest
    ) -> follow.FollowResponse | None:
        """Read committed entries. Return None if the answer is sent once there are some."""


def answer_metadata(service: Service, raw: bytes) -> requests.MetadataResponse:
    """The answer to METADATA. Without a remote id, the caller asks whom it has reached: a Service's
    address names nobody. FormatError.
    """
    json_objects.parse(raw)
    request = requests.MetadataRequest.from_json(raw)
    refused = misdirected(service, request) if request.remote_id else foreign(service, request)
    if refused is not None:
        return requests.MetadataResponse(code=refused, group=service.group)
    return service.metadata()


def system_answer(opaque: int, code: SystemCode, remark: str) -> bytes:
    """The frame that answers what no service was asked for."""
    return frames.encode(
        RemotingCommand(code=code, opaque=opaque, flag=frames.RESPONSE_FLAG, remark=remark[:512])
    )


def misdirected(service: Service, request: requests.Message) -> DLedgerResponseCode | None:
    """Check member and group first, as Java does, so that no answer comes from a stranger."""
    if request.remote_id != service.self_id:
        return DLedgerResponseCode.UNKNOWN_MEMBER
    return foreign(service, request)


def foreign(service: Service, request: requests.Message) -> DLedgerResponseCode | None:
    """The same for a request that may name no member."""
    return DLedgerResponseCode.UNKNOWN_GROUP if request.group != service.group else None
