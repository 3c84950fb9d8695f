"""The part of a group's desired state that is not in its spec: founders and progress of scaling."""

from dataclasses import dataclass
from typing import Self

from dledger_formats.settings import GroupState


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The inputs, besides the spec, from which a group's children are built."""

    first_voters: int
    """Number of voters at the founding: n0, n1, and so on. Later changes are in the log, but a
    member that has received none of them uses its settings. So this number never changes while the
    group exists, whatever `spec.replicas` becomes.
    """
    state: GroupState
    """The initial group state for the members: NEW only if no member can have a log."""
    pods: int
    """Replicas of the StatefulSet. They approach `spec.replicas` one member at a time."""
    voters: int
    """Number of voters now."""
    identity: str = ""
    """The group's identity; empty while a group of an earlier release has none yet."""
    superseded: frozenset[int] = frozenset()
    """The numbers of first voters of earlier foundings, none of which has begun."""

    @classmethod
    def of_new(cls, replicas: int) -> Self:
        """Return the shape of a group that has not been founded yet."""
        return cls(first_voters=replicas, state=GroupState.NEW, pods=replicas, voters=replicas)
