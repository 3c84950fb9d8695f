"""Bytes that a member's process received and sent since its start, by kind of connection."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Transferred:
    """Bytes of one kind of connection, without the headers of TCP."""

    received_bytes: int = 0
    sent_bytes: int = 0
    """Bytes that were handed to the connection; if it breaks, the last may not be delivered."""


@dataclass(slots=True)
class Traffic:
    """The bytes of all connections. They are counted per read and write of a connection, each of
    which carries many messages.
    """

    clients: Transferred = field(default_factory=Transferred)
    """Connections of the client port; also the HELLO of a link, and its answer."""
    peers: Transferred = field(default_factory=Transferred)
    """Links in both directions."""
    http: Transferred = field(default_factory=Transferred)
    """Connections of the HTTP port, except those that the deputy answers."""

    def by_kind(self) -> dict[str, Transferred]:
        """Return the bytes by the name of their kind."""
        return {"client": self.clients, "peer": self.peers, "http": self.http}
