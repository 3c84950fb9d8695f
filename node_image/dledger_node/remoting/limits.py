"""Every limit on what comes over the wire, with its default and the reason for it.

Whoever can open a connection may be hostile, broken or merely slow. Each limit bounds what one such
connection, or all of them together, may cost this member. What exceeds one is refused or cut off,
counted by the reason named here, and harms nobody else. `gate` and `connection` apply them.
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

SMALL_FRAME_BYTES: Final = 64 * 1024
"""A connection that holds no more of an unfinished frame is never made to wait for the others."""


class Reason(enum.StrEnum):
    """Why a connection was refused or closed by this member; a label of its metric."""

    PROTOCOL = "protocol"
    """Bytes that no sane peer sends."""
    CONNECTIONS = "connections"
    CONNECTIONS_PER_ADDRESS = "connections_per_address"
    FIRST_FRAME = "first_frame"
    FRAME = "frame"
    IDLE = "idle"
    UNREAD = "unread"
    """It reads no answers: too many bytes wait for it, or they wait for too long."""
    REPLACED = "replaced"
    """A peer has opened newer links since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one member. Java's, where it has one: `NettyRemotingServer`, `NettyDecoder`."""

    client_frame_bytes_max: int = CLIENT_FRAME_BYTES_MAX
    """The largest entry in base64, and 64 KiB for all else. Settable."""
    peer_frame_bytes_max: int = frames.FRAME_BYTES_MAX
    """Java's limit. A link is held to the clients' until its HELLO is accepted."""
    header_bytes_max: int = frames.HEADER_BYTES_MAX
    """Stated here, applied by the decoder: our headers have about 100 bytes."""

    first_frame_s: float = 5.0
    """From connecting to the first whole frame. Who connects and says nothing holds a place that
    others need; a member says HELLO and a client its request at once.
    """
    frame_s: float = 30.0
    """From a frame's first byte to its last: the largest at 200 KiB/s. A byte now and then does
    not prolong it.
    """
    idle_s: float = 120.0
    """Without a byte in either direction; as Java. Links of peers are quiet by nature and stay."""
    unread_s: float = 30.0
    """How long answers may wait above `unsent_bytes_high` before the connection is cut off."""

    connections_max: int = CONNECTIONS_MAX
    """Of clients and strangers; Java has none. Each costs a few KiB. Settable."""
    connections_per_address_max: int = CONNECTIONS_PER_ADDRESS_MAX
    """So that one host cannot take all places. Settable, for clients behind one gateway."""
    hello_places: int = 16
    """Beyond both, this many connections may still open with HELLO and nothing else, so that a
    member is never shut out; the oldest gives way, since a member says HELLO at once.
    """
    links_per_peer_max: int = 4
    """A peer needs one; a few more may be dying. The oldest gives way."""

    received_bytes_max: int = 128 << 20
    """Of unfinished frames, of all connections. Above it, of those that hold more than
    SMALL_FRAME_BYTES only the oldest is read on; the others wait for room, or until their time is
    over.
    """
    unsent_bytes_high: int = 1 << 20
    """Of one connection's answers. Above it, nothing more is read from it or done for it."""
    unsent_bytes_max: int = 16 << 20
    """Of one connection's answers. The largest answer (one entry, 5.4 MiB) and those of its pending
    appends (10,000 of 250 bytes) fit.
    """
    unsent_bytes_total_max: int = 128 << 20
    """Of all connections' answers; one that adds to more, above `unsent_bytes_high`, is cut off."""

    @classmethod
    def of(cls, settings: NodeSettings) -> Self:
        """The defaults, and what the settings say."""
        return cls(
            client_frame_bytes_max=settings.client_frame_bytes_max,
            connections_max=settings.connections_max,
            connections_per_address_max=settings.connections_per_address_max,
        )

    @property
    def buffered_bytes_max(self) -> int:
        """What connections may hold of memory, all together, beside their reads in progress."""
        return (
            self.received_bytes_max
            + self.peer_frame_bytes_max
            + self.unsent_bytes_total_max
            + self.connections_max * (SMALL_FRAME_BYTES + self.unsent_bytes_high)
        )
