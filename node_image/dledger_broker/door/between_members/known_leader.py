"""What the way of requests to the leader needs to know of it."""

from typing import Protocol, TypeAlias

LeaderTerm: TypeAlias = tuple[str, int]
"""The leader and its term."""


class KnownLeader(Protocol):
    """What this member knows of the leader."""

    @property
    def is_proven(self) -> bool:
        """Whether this member leads, and knows all that was acknowledged before it did."""

    @property
    def leads(self) -> bool:
        """Whether this member leads; it need not be ready."""

    @property
    def leader(self) -> LeaderTerm | None:
        """The leader and its term; None if this member knows none."""
