"""Every limit on what arrives over the network, with its default and the reason for it.

A client may be hostile, broken or merely slow. Each limit bounds what one connection, or all of
them together, may cost this member. A connection that exceeds a limit is refused or cut, and
counted under the reason named here. `gate` and `connection` apply the limits.
"""

import enum
from dataclasses import dataclass
from typing import Final, Self

from dledger_formats.protocol import frames
from dledger_formats.settings import (
    CLIENT_FRAME_BYTES_MAX,
    CONNECTIONS_MAX,
    CONNECTIONS_PER_ADDRESS_MAX,
    NodeSettings,
)
from dledger_node.open_files import connections_that_fit
from dledger_node.remoting.held_bytes import SMALL_FRAME_BYTES

HELD_BYTES_MIN: Final = 16 << 20
HELD_BYTES_MAX: Final = 128 << 20
SHARE_OF_MEMORY: Final = 8
"""The member's memory is divided by this to bound the bytes of unfinished frames, and those of
unread answers. Other uses of memory do not depend on it: 64 MiB for appends that wait, 64 KiB for
each connection, 32 MiB for pages, and about 100 MiB without any client.
"""


class Reason(enum.StrEnum):
    """Why this member refused or closed a connection; a label of its metric."""

    PROTOCOL = "protocol"
    """The other side sent bytes that no correct client or peer sends."""
    CONNECTIONS = "connections"
    CONNECTIONS_PER_ADDRESS = "connections_per_address"
    FIRST_FRAME = "first_frame"
    FRAME = "frame"
    IDLE = "idle"
    UNREAD = "unread"
    """The other side does not read its answers: too many bytes wait, or wait for too long."""
    LINK_REFUSED = "link_refused"
    """Its HELLO was refused: the sender is not a member of this group, or has other settings."""
    REPLACED = "replaced"
    """The peer has opened newer links."""
    STOPPED = "stopped"
    """This member stops, and the client did not close the connection in time."""
    ISOLATED = "isolated"
    """A client of a broker waits for messages, but the member knows no leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one member, as in Java where it has one (`NettyRemotingServer`,
    `NettyDecoder`).
    """

    client_frame_bytes_max: int = CLIENT_FRAME_BYTES_MAX
    """The largest frame of a client: the largest entry in base64, and 64 KiB. Settable."""
    peer_frame_bytes_max: int = frames.FRAME_BYTES_MAX
    """The largest frame of a link whose HELLO was accepted. Java's limit."""
    header_bytes_max: int = frames.HEADER_BYTES_MAX
    """The largest header of a frame; the decoder applies it. Typical headers have about 100 bytes.
    """

    first_frame_s: float = 5.0
    """Maximum time from the connection to its first whole frame. A member sends HELLO and a client
    its request at once; a silent connection occupies a place that others need.
    """
    frame_s: float = 30.0
    """Maximum time from a frame's first byte to its last: enough for the largest frame at
    200 KiB/s. Further bytes do not extend it.
    """
    idle_s: float = 120.0
    """Maximum time without a byte in either direction, as in Java. Links of peers are exempt."""
    unread_s: float = 30.0
    """How long answers may wait above `unsent_bytes_high` before the connection is cut."""

    connections_max: int = CONNECTIONS_MAX
    """Maximum number of clients' connections. Java has no limit. Each costs a few KiB. Settable."""
    connections_wanted: int = CONNECTIONS_MAX
    """What the settings ask for; more than `connections_max` if too few files may be open."""
    connections_per_address_max: int = CONNECTIONS_PER_ADDRESS_MAX
    """Maximum number of connections of one host, so that it cannot take all places. Settable, for
    clients behind one gateway.
    """
    client_requests_per_s_max: int = 0
    """Requests a second of one address, above which it is read more slowly; 0 for no limit.
    Settable, as the next one.
    """
    client_bytes_per_s_max: int = 0
    """Bytes a second of one address; 0 for no limit."""
    hello_places: int = 16
    """Number of connections beyond both limits that may still send HELLO, so that clients cannot
    shut out a member. A new one replaces the oldest, because a member sends HELLO at once.
    """
    links_per_peer_max: int = 4
    """Maximum number of links of one peer. It needs one, and a few more may be about to close. A
    new one replaces the oldest.
    """

    received_bytes_max: int = HELD_BYTES_MAX
    """Bytes of unfinished frames that all clients hold. Above half of this, of the connections that
    hold more than SMALL_FRAME_BYTES only the oldest is read, and those of each address that holds
    less than its share of the other half; the others wait for room.
    """
    links_received_bytes_max: int = frames.FRAME_BYTES_MAX
    """Bytes of unfinished frames that all links hold: clients must not use up this room."""
    unsent_bytes_high: int = 1 << 20
    """Unsent bytes of one connection's answers. Above this, its requests are neither read nor
    handled.
    """
    unsent_bytes_max: int = 16 << 20
    """Maximum unsent bytes of one connection's answers: enough for the largest answer (one entry,
    5.4 MiB) and the answers to its pending appends (10,000 of 250 bytes).
    """
    unsent_bytes_total_max: int = HELD_BYTES_MAX
    """Maximum unsent bytes of all connections' answers. Above it, the connections that leave most
    unread are cut. The answer that exceeds it may be held in addition.
    """

    @classmethod
    def of(cls, settings: NodeSettings, before: Self | None = None) -> Self:
        """Return the limits that the settings give, and the defaults of all others.

        Fewer connections are accepted if this process may not open enough files. This is logged,
        but not again if the limits `before` were made for the same number of connections.
        """
        wanted = settings.connections_max
        if before is not None and before.connections_wanted == wanted:
            connections_max = before.connections_max
        else:
            connections_max = connections_that_fit(wanted)
        held_bytes = held_bytes_max(settings.memory_limit_bytes)
        return cls(
            received_bytes_max=held_bytes,
            unsent_bytes_total_max=held_bytes,
            client_frame_bytes_max=settings.client_frame_bytes_max,
            connections_max=connections_max,
            connections_wanted=wanted,
            connections_per_address_max=settings.connections_per_address_max,
            client_requests_per_s_max=settings.client_requests_per_s_max,
            client_bytes_per_s_max=settings.client_bytes_per_s_max,
        )

    @property
    def buffered_bytes_max(self) -> int:
        """The memory that all connections may hold, except for reads in progress."""
        return (
            self.received_bytes_max
            + self.links_received_bytes_max
            + self.peer_frame_bytes_max
            + self.unsent_bytes_total_max
            + self.unsent_bytes_max
            + self.connections_max * SMALL_FRAME_BYTES
        )


def held_bytes_max(memory_limit_bytes: int) -> int:
    """Return how many bytes all unfinished frames, or all unread answers, may hold.

    `memory_limit_bytes` is 0 for a member without a limit.
    """
    if not memory_limit_bytes:
        return HELD_BYTES_MAX
    return min(HELD_BYTES_MAX, max(HELD_BYTES_MIN, memory_limit_bytes // SHARE_OF_MEMORY))
