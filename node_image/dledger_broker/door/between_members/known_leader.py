"""What must be known of the leader in order to pass requests on to it."""

from typing import Protocol, TypeAlias

LeaderTerm: TypeAlias = tuple[str, int]
"""The leader and its term."""


class KnownLeader(Protocol):
    """What this member knows of the leader."""

    @property
    def is_proven(self) -> bool:
        """Whether this member leads, and knows all that was acknowledged before its term."""

    @property
    def leads(self) -> bool:
        """Whether this member leads, ready or not."""

    @property
    def leader(self) -> LeaderTerm | None:
        """The leader and its term; None if this member knows none."""
