"""What a link needs from its member."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from dledger_formats.protocol import frames
from dledger_node.raft.messages import AppendRequest, InstallSnapshotRequest
from dledger_node.remoting import native

Push: TypeAlias = AppendRequest | InstallSnapshotRequest
Entries: TypeAlias = tuple[Sequence[frames.Buffer], int]
"""Stored bytes of a push's first entries, and the last index among them."""


class OnDiskError(Exception):
    """The page cache lacks the entries."""


class PeerLinkOwner(Protocol):
    """The server, as a link sees it."""

    def hello(self, peer_id: str) -> native.Hello:
        """Return the HELLO to this peer."""

    def read_entries(self, push: Push, bytes_max: int) -> Entries | None:
        """Return the first entries of a push without waiting for the disk.

        Returns None for a push that is out of date, because its leader has been deposed. Raises
        OnDiskError if the entries must be fetched.
        """

    def fetch(self, push: Push, bytes_max: int, then: Callable[[Entries | None], None]) -> None:
        """Read the first entries of a push in a thread, and call `then` with them; or with None if
        the push is out of date by then.
        """

    def link_restored(self, peer_id: str) -> None:
        """Note that the peer has accepted this member's HELLO."""

    def link_lost(self, peer_id: str) -> None:
        """Note that the connection broke, or could not be made."""
