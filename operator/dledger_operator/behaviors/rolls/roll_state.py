"""The state of a group that decides the next step of a roll: its pods, and what members answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dledger_formats.protocol.membership_change import PROMOTION_LAG_ENTRIES_MAX
from dledger_operator.problem import Problem

READY_S_MIN: Final = 5.0
LEADERLESS_S_MIN: Final = 30.0
"""Members elect a leader within a few election timeouts, each 1 s by default."""
LAG_ENTRIES_MAX: Final = PROMOTION_LAG_ENTRIES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class RollPod:
    """A member's pod, and the member's latest answer."""

    name: str
    uid: str
    member_id: str
    behind: str
    """In which parts the pod differs from the wanted revision; empty if in none."""
    leaving: bool
    runs: bool
    """Whether the kubelet reports that the container runs."""
    healthy: bool
    """Whether the pod is ready, and the member answers and serves its role."""
    blank: bool
    """Whether the member answers that it holds no entry, has voted for nobody and knows no leader.
    """
    ready_s: float = 0.0
    """For how long the pod has been ready, as far as this operator has seen."""
    unready_s: float = 0.0
    """For how long it has not been ready, as far as this operator has seen."""
    altered: bool = False
    """Whether the pod is behind although it was made from the current template."""
    lag_entries: int | None = None
    """How many committed entries the member lacks, by the leader's answer; None if unknown."""
    problem: Problem | None = None
    """Why the pod does not start; None if it does."""
    reason: str = ""
    """Why the member reports that it is not ready; empty if it gives no reason."""
    emptied: bool = False
    """Whether its node is being emptied, so that the pod is about to be evicted."""
    volume_leaving: bool = False
    """Whether the volume's claim was deleted; the log is lost with the pod that still uses it."""

    @property
    def has_entries(self) -> bool:
        """Whether the member is healthy and has nearly all entries."""
        return self.healthy and self.lag_entries is not None and self.lag_entries <= LAG_ENTRIES_MAX

    @property
    def is_steady(self) -> bool:
        """Whether the member has served its role for a while."""
        return self.has_entries and not self.leaving and self.ready_s >= READY_S_MIN


@dataclass(frozen=True, slots=True, kw_only=True)
class RollState:
    """The state of a group that determines the next step."""

    pods: Sequence[RollPod]
    leader_id: str | None
    """The proven leader, according to its own answer."""
    voters: frozenset[str]
    led: bool
    """Whether the group ever had a leader; if not, no member can hold an acknowledged entry."""
    scaling: bool
    """Whether a step of scaling goes first."""
    staying: frozenset[str] | None = None
    """Members that the spec asks for; None if all stay."""
    refused: Mapping[str, Problem] = field(default_factory=dict)
    """Why members' pods could not be created, by member id."""
    awaited_s: Mapping[str, float] = field(default_factory=dict)
    """For how long the roll has waited for a member's new pod to be ready, by member id."""
    refusals: Mapping[str, int] = field(default_factory=dict)
    """How often the leader has refused to hand over to each member, by member id."""
    leaderless_s_min: float = LEADERLESS_S_MIN
    """How long members must have been without a leader and not ready before any is replaced."""

    @property
    def quorum(self) -> int:
        """Number of voters that make a majority."""
        return len(self.voters) // 2 + 1

    @property
    def others_min(self) -> int:
        """Number of other voters that must be able to commit while one is replaced: a majority.

        One voter, and two in the middle of scaling, have no majority without one of them. Scaling
        may need just this replacement, so the group pauses until the member is back.
        """
        return min(self.quorum, len(self.voters) - 1)
