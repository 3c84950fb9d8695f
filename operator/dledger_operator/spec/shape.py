"""What of a group its spec does not say: who founded it, and how far it has grown."""

from dataclasses import dataclass
from typing import Self

from dledger_formats.settings import GroupState


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A group as its objects must be made now."""

    first_voters: int
    """n0, n1, … were the first voters. Who votes later stands in the log; but a member that has
    heard of no change goes by its settings, so these stay as they are for as long as the group
    lives, whatever `spec.replicas` becomes.
    """
    state: GroupState
    """NEW only for a group that surely has no log anywhere."""
    pods: int
    """The replicas of the StatefulSet: they follow the spec one member at a time."""
    voters: int

    @classmethod
    def of_new(cls, replicas: int) -> Self:
        """The shape of a group that is founded now."""
        return cls(first_voters=replicas, state=GroupState.NEW, pods=replicas, voters=replicas)
