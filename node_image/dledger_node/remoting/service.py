"""The server as connections see it: requests in, answers out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

import msgspec

from dledger_formats.protocol import follow, frames, read_range, requests
from dledger_formats.protocol.administration import AdminRequest
from dledger_formats.protocol.canary import AppendCanaryRequest
from dledger_formats.protocol.codes import DLedgerResponseCode, SystemCode
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.leadership_transfer import LeadershipTransferRequest
from dledger_formats.protocol.membership_change import ChangeMembershipRequest
from dledger_formats.protocol.producers import RegisterProducerRequest
from dledger_formats.protocol.register import ReadRegisterRequest
from dledger_node.remoting import native
from dledger_node.remoting.connection_views import PeerConnection, Reader, WritableConnection
from dledger_node.remoting.gate import Gate
from dledger_node.remoting.message_kinds import PeerMessage
from dledger_node.remoting.read_turns import ReadTurns

Reply: TypeAlias = Callable[[requests.Message], None]
"""Sends the answer to one request, now or later. Does nothing if the connection is gone."""


class Refused(Protocol):
    """The refusal of a request."""

    @property
    def code(self) -> DLedgerResponseCode:
        """The code of the answer."""

    @property
    def remark(self) -> str:
        """What is wrong, in words."""


ServePeer: TypeAlias = Callable[[RemotingCommand, PeerConnection], None]
"""Takes a request of another member."""


class ClientCall(msgspec.Struct, frozen=True, gc=False):
    """The destination of an append's answer; a msgspec.Struct, since those are created fastest."""

    connection: WritableConnection
    opaque: int

    @property
    def entry_count(self) -> int:
        """Number of entries that the call appends."""
        return 1


class AppendCall(ClientCall, frozen=True, gc=False):
    """An APPEND."""

    body: bytes


class IdempotentCall(AppendCall, frozen=True, gc=False):
    """An APPEND_IDEMPOTENT, with its producer and sequence."""

    producer: int
    sequence: int


class BatchCall(ClientCall, frozen=True, gc=False):
    """An APPEND_BATCH: bodies of consecutive entries, with one answer for all."""

    bodies: Sequence[bytes]

    @property
    def entry_count(self) -> int:
        """Number of entries that the call appends."""
        return len(self.bodies)


class IdempotentBatchCall(BatchCall, frozen=True, gc=False):
    """An APPEND_IDEMPOTENT_BATCH, with its producer and the sequence of its first body."""

    producer: int
    sequence: int

    @property
    def last_sequence(self) -> int:
        """The sequence of the last body."""
        return self.sequence + len(self.bodies) - 1


class AppendService(Protocol):
    """Takes appends, and answers each on its connection."""

    def append(self, calls: list[AppendCall]) -> None:
        """Append entries."""

    def append_idempotent(self, calls: list[IdempotentCall]) -> None:
        """Append entries that may already be in the log."""

    def append_batch(self, call: BatchCall) -> None:
        """Append a batch, idempotent or not, with one answer for all its entries."""


class PassOnService(Protocol):
    """Passes appends on to the leader, while this member does not lead."""

    @property
    def leader_id(self) -> str | None:
        """The leader that gets appends from this member; None if it must not pass any on."""

    def is_foreign(self, command: RemotingCommand) -> bool:
        """Return whether another member passed this append on, but not for this group."""

    def pass_on(self, call: AppendCall | BatchCall) -> None:
        """Pass on a plain append; its caller gets the leader's answer."""


class PeerService(Protocol):
    """Receives the messages of the peers."""

    def refuse_hello(self, hello: native.Hello) -> str | None:
        """Return why the sender of this HELLO must not open a link; None if it may."""

    def receive(self, message: PeerMessage) -> None:
        """Handle a message of a peer whose HELLO was accepted. Raises RemoteProtocolError."""


class Service(Protocol):
    """The member, as connections see it."""

    @property
    def group(self) -> str:
        """The name of the group."""

    @property
    def self_id(self) -> str:
        """The member's id."""

    @property
    def gate(self) -> Gate:
        """Counts and limits the connections."""

    @property
    def appends(self) -> AppendService:
        """Takes the appends."""

    @property
    def passed_on(self) -> PassOnService:
        """Passes appends on to the leader."""

    @property
    def peers(self) -> PeerService:
        """Receives the messages of the peers."""

    @property
    def peer_requests(self) -> Mapping[int, ServePeer]:
        """The handlers of members' requests to a program that is built on the member, by code."""

    def register_producer(self, request: RegisterProducerRequest, reply: Reply) -> None:
        """Register a producer, so that the client can number its appends."""

    def metadata(self) -> requests.MetadataResponse:
        """Return the members of the group and its leader."""

    @property
    def read_turns(self) -> ReadTurns:
        """Shares the loop's time among reads."""

    def get(self, reader: Reader, request: requests.GetEntriesRequest, reply: Reply) -> None:
        """Read committed entries."""

    def read_range(self, reader: Reader, opaque: int, request: read_range.ReadRangeRequest) -> None:
        """Read committed entries as they are stored."""

    def refuse_admin(self, request: AdminRequest, address: str) -> Refused | None:
        """Return why a request that would change the group is refused; None if it is allowed.

        `address` is that of the host that sent it.
        """

    def transfer_leadership(self, request: LeadershipTransferRequest, reply: Reply) -> None:
        """Transfer the leadership."""

    def change_membership(self, request: ChangeMembershipRequest, reply: Reply) -> None:
        """Change the membership of the group."""

    def read_register(self, request: ReadRegisterRequest, reply: Reply) -> None:
        """Read the register, if that is the group's state machine."""

    def append_canary(self, request: AppendCanaryRequest, reply: Reply) -> None:
        """Append an entry that readers skip."""

    def follow(self, reader: Reader, opaque: int, request: follow.FollowRequest) -> None:
        """Read committed entries, or wait until there are some."""


def answer_metadata(service: Service, raw: bytes) -> requests.MetadataResponse:
    """Return the answer to METADATA. Raises FormatError.

    A request without a remote id asks which member it has reached: a Kubernetes Service has one
    address for all.
    """
    request = requests.MetadataRequest.from_json(raw)
    refused = misdirected(service, request) if request.remote_id else foreign(service, request)
    if refused is not None:
        return requests.MetadataResponse(code=refused, group=service.group)
    return service.metadata()


def system_answer(opaque: int, code: SystemCode, remark: str) -> bytes:
    """Return the frame that answers a request which did not reach the service."""
    return frames.encode(
        RemotingCommand(code=code, opaque=opaque, flag=frames.RESPONSE_FLAG, remark=remark[:512])
    )


def misdirected(service: Service, request: requests.Request) -> DLedgerResponseCode | None:
    """Return the refusal of a request for another member or group, as in Java; else None."""
    if request.remote_id != service.self_id:
        return DLedgerResponseCode.UNKNOWN_MEMBER
    return foreign(service, request)


def foreign(service: Service, request: requests.Request) -> DLedgerResponseCode | None:
    """Return the refusal of a request for another group; else None."""
    return DLedgerResponseCode.UNKNOWN_GROUP if request.group != service.group else None
