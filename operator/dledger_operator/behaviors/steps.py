"""The steps that more than one kind of work takes: founding, scaling, rolls, handovers."""

from dataclasses import dataclass

from dledger_operator.problem import Problem


@dataclass(frozen=True, slots=True)
class Wait:
    """No step is possible now."""

    problem: Problem
    """What is in the way."""

    @property
    def reason(self) -> str:
        """The machine-readable reason, in CamelCase."""
        return self.problem.reason

    @property
    def message(self) -> str:
        """What is in the way, in words."""
        return self.problem.message


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """Ask the leader to transfer its leadership to another member."""

    leader_id: str
    to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPods:
    """Set the replicas of the StatefulSet."""

    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAgain:
    """Recreate the StatefulSet and its pods, for a group that begins with fewer first voters."""

    first_voters: int
