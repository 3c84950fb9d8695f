"""A group's membership, and the possible changes to it, of one member at a time.

A membership is in effect on a member as soon as its entry is in the log, committed or not, until
the entry is truncated. If each change concerns one member, any two majorities of successive
memberships have a voter in common, so no joint state is needed between them (Raft dissertation,
4.1). The rules for leaders are in `changes`.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

MEMBERS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Membership:
    """Voters and learners, each sorted. Raises ValueError if they contradict each other."""

    voters: tuple[str, ...]
    learners: tuple[str, ...] = ()
    """Members that receive and confirm entries, but count in no quorum."""

    def __post_init__(self) -> None:
        for ids in (self.voters, self.learners):
            if list(ids) != sorted(set(ids)):
                raise ValueError(f"members must be sorted and distinct: {ids}")
        if not self.voters:
            raise ValueError("a group must have at least one voter")
        if not set(self.voters).isdisjoint(self.learners):
            raise ValueError(
                f"voters {self.voters} and learners {self.learners} have a member in common"
            )
        if len(self.voters) + len(self.learners) > MEMBERS_MAX:
            raise ValueError(f"a group has at most {MEMBERS_MAX} members")

    @property
    def members(self) -> tuple[str, ...]:
        """Voters and learners, sorted."""
        return tuple(sorted(self.voters + self.learners))


class MembershipEntry(NamedTuple):
    """A membership, and the index of its log entry."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used here
    membership: Membership


@dataclass(frozen=True, slots=True)
class AddLearner:
    """Add a new member as a learner."""

    member_id: str


@dataclass(frozen=True, slots=True)
class Promote:
    """Make a learner a voter."""

    member_id: str


@dataclass(frozen=True, slots=True)
class Demote:
    """Make a voter a learner."""

    member_id: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a voter or a learner from the group."""

    member_id: str


Change: TypeAlias = AddLearner | Promote | Demote | Remove


def changed(membership: Membership, change: Change) -> Membership:
    """Return the membership after a change. Raises ValueError if it would be invalid."""
    voters = set(membership.voters) - {change.member_id}
    learners = set(membership.learners) - {change.member_id}
    match change:
        case AddLearner() | Demote():
            learners.add(change.member_id)
        case Promote():
            voters.add(change.member_id)
        case Remove():
            pass
    return Membership(tuple(sorted(voters)), tuple(sorted(learners)))
