"""What connections ask of the server, and how they are answered."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from dledger_formats import follow, requests
from dledger_formats.leadership_transfer import LeadershipTransferRequest
from dledger_formats.membership_change import ChangeMembershipRequest
from dledger_formats.requests import DLedgerResponseCode
from dledger_node.raft.messages import Message
from dledger_node.remoting import native
from dledger_node.remoting.gate import Gate

if TYPE_CHECKING:
    from dledger_node.remoting.connection import Connection

Reply: TypeAlias = Callable[[requests.Message], None]
"""Sends the answer to one request, now or later; a connection that is gone by then ignores it."""


class AppendCall(msgspec.Struct, frozen=True, gc=False):
    """An APPEND, and the connection on which its answer goes back. A Struct, for its speed."""

    connection: "Connection"
    opaque: int
    body: bytes


class OnceCall(AppendCall, frozen=True, gc=False):
    """An APPEND_ONCE: whose it is, and its sequence among them."""

    producer: int
    sequence: int


class Service(Protocol):
    """What connections ask of the server."""

    group: str
    self_id: str
    gate: Gate

    def append(self, calls: list[AppendCall]) -> None:
        """Take appends; each is answered on its connection."""

    def append_once(self, calls: list[OnceCall]) -> None:
        """Take appends that may be in the log already."""

    def register_producer(self, reply: Reply) -> None:
        """Let a client number its appends."""

    def metadata(self) -> requests.MetadataResponse:
        """Who is in the group, and who leads it."""

    def get(self, request: requests.GetEntriesRequest, reply: Reply) -> None:
        """Read committed entries."""

    def transfer_leadership(self, request: LeadershipTransferRequest, reply: Reply) -> None:
        """Hand the leadership over."""

    def change_membership(self, request: ChangeMembershipRequest, reply: Reply) -> None:
        """Change who belongs to the group."""

    def follow(
        self, connection: "Connection", opaque: int, request: follow.FollowRequest
    ) -> follow.FollowResponse | None:
        """Read committed entries; None when the answer is sent once there are some."""

    def refuse_hello(self, hello: native.Hello) -> str | None:
        """Say why this caller may not open a link; None when it may."""

    def peer_message(self, message: Message) -> None:
        """Take a message of the peer whose HELLO was accepted; RemoteProtocolError if it is bad."""


def misdirected(service: Service, request: requests.Message) -> DLedgerResponseCode | None:
    """Check member and group first, as Java does, so that no answer comes from a stranger."""
    if request.remote_id != service.self_id:
        return DLedgerResponseCode.UNKNOWN_MEMBER
    return foreign(service, request)


def foreign(service: Service, request: requests.Message) -> DLedgerResponseCode | None:
    """The same for a request that may name no member."""
    return DLedgerResponseCode.UNKNOWN_GROUP if request.group != service.group else None
