"""An accepted connection (`connection.Connection`), as each part of a member sees it.

WritableConnection  what answers need
Reader              what its reads need, which take turns with those of other connections
RequestConnection   what the dispatcher needs to handle its requests
PeerConnection      what a program on this member needs to answer another member
GatedConnection     what the gate needs to limit and to end it
"""

from collections.abc import Sequence
from typing import Protocol

from dledger_formats.protocol.frames import Buffer, RemotingCommand
from dledger_node.remoting import native
from dledger_node.remoting.limits import Reason


class WritableConnection(Protocol):
    """A connection, as the code that answers its requests sees it."""

    address: str
    """The address of the other side's host."""

    def send(self, data: Buffer) -> None:
        """Send frames, or parts of one; does nothing if the connection is gone.

        The caller must not change `data` afterwards.
        """


class Reader(WritableConnection, Protocol):
    """A connection, as its reads see it."""

    unread_since_s: float | None
    """The time since which the other side has not read its answers; None while it reads them."""
    reads_waiting: int
    """The number of its reads that are not answered."""

    def go_on(self) -> None:
        """Handle the requests that were put off while too many reads waited."""


class RequestConnection(Reader, Protocol):
    """A connection, as the dispatcher of its requests sees it."""

    peer_id: str | None
    """The member that the connection's HELLO named; None for a client."""
    takes_go_away: bool
    """Whether the other side understands GO_AWAY."""

    def put_off(self, commands: Sequence[RemotingCommand]) -> None:
        """Keep commands until `go_on`, or until the other side reads its answers again."""

    def become_link(self, hello: native.Hello) -> None:
        """Note that the sender of this HELLO was accepted."""

    def cut(self, reason: Reason, detail: str) -> None:
        """Close at once; bytes that wait to be sent are lost."""


class PeerConnection(WritableConnection, Protocol):
    """The connection of another member, as a program on this member sees it."""

    def cut(self, reason: Reason, detail: str) -> None:
        """Close at once; bytes that wait to be sent are lost."""


class GatedConnection(Protocol):
    """A connection, as the gate sees it."""

    address: str
    """The address of the other side's host."""
    peer_id: str | None
    """The member that the connection's HELLO named; None for a client."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes of this connection's answers that the kernel has not accepted yet."""

    def overdue(self, now_s: float) -> Reason | None:
        """Return the time limit that the connection has exceeded."""

    def cut(self, reason: Reason, detail: str) -> None:
        """Close at once; bytes that wait to be sent are lost."""

    def end(self) -> None:
        """Send what was written, then end; a client's connection lasts until the client closes."""

    def take_no_more(self) -> None:
        """Stop reading requests if the client understands GO_AWAY, which will say so."""

    def pause_for_room(self) -> None:
        """Stop reading until `resume`."""

    def resume(self) -> None:
        """Resume reading."""
