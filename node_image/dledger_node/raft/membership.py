"""Who belongs to a group, and the changes that there are: one member at a time.

A membership is valid from the moment its entry is in a member's log, committed or not, and goes
when the entry is truncated. Changes of one member leave any two majorities of neighbouring
memberships with a voter in common, so no third state is needed between them (Raft dissertation,
4.1). The rules that a leader keeps are in `changes`.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

MEMBERS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Membership:
    """Voters and learners, each sorted; ValueError when they contradict each other."""

    voters: tuple[str, ...]
    learners: tuple[str, ...] = ()
    """Who takes entries and confirms them, and counts in no quorum."""

    def __post_init__(self) -> None:
        for ids in (self.voters, self.learners):
            if list(ids) != sorted(set(ids)):
                raise ValueError(f"members must be sorted and distinct: {ids}")
        if not self.voters:
            raise ValueError("a group without voters cannot be")
        if not set(self.voters).isdisjoint(self.learners):
            raise ValueError(f"{self.voters} and {self.learners} have a member in common")
        if len(self.voters) + len(self.learners) > MEMBERS_MAX:
            raise ValueError(f"a group has {MEMBERS_MAX} members at most")

    @property
    def members(self) -> tuple[str, ...]:
        """Voters and learners, sorted."""
        return tuple(sorted(self.voters + self.learners))


class MembershipEntry(NamedTuple):
    """A membership, and the index of the entry that it is in."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    membership: Membership


@dataclass(frozen=True, slots=True)
class AddLearner:
    """Let somebody take entries, who is no member yet."""

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
    """Let a voter or a learner belong to the group no more."""

    member_id: str


Change: TypeAlias = AddLearner | Promote | Demote | Remove


def changed(membership: Membership, change: Change) -> Membership:
    """The membership after a change; ValueError when that cannot be."""
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
