"""Who led before, and how long each change took, phase by phase. No IO: time is passed in.

A change runs through four phases. Each begins where the one before ends:

    detect      first sign of trouble (silence, a leader that steps down, its pod leaving)
                -> a member is seen in a later term
    elect       -> the new leader is proven
    relabel     -> the role labels are right
    endpoints   -> the master Service has the new leader as its only endpoint

They are the operator's own observations on one monotonic clock, so each includes the time that the
news took to reach it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from dledger_operator.facts import Leader, LeaderChange, Observation
from dledger_operator.views import PodView

CHANGES_MAX: Final = 10
FIRST_LEADER: Final = "FirstLeader"
FOUND_AT_START: Final = "FoundAtStart"
LEADER_LOST: Final = "LeaderLost"
LEADER_STEPPED_DOWN: Final = "LeaderSteppedDown"
POD_REPLACED: Final = "PodReplaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTime:
    """One phase of a leader change that was seen from begin to end."""

    phase: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trouble:
    began_s: float
    reason: str
    later_term_s: float | None = None


class LeaderHistory:
    """The leader of one group over time."""

    def __init__(self, changes: Sequence[LeaderChange]) -> None:
        """Take up the changes that the group's status remembers from before this process.

        The newest, which comes first, tells who led then; also when nobody leads now.
        """
        self.changes = tuple(changes[:CHANGES_MAX])
        last = self.changes[0] if self.changes else None
        self.leader = Leader(term=last.term, member_id=last.to_member) if last else None
        self._seen_leading = False
        self._trouble: _Trouble | None = None
        self._step_began_s: float | None = None
        self._change_began_s: float | None = None

    def look(
        self, now_s: float, observations: Sequence[Observation], pods: Sequence[PodView]
    ) -> None:
        """Note the first sign of trouble, and the first member in a later term."""
        if self.leader is None or not self._seen_leading:
            return
        reason = _sign_of_trouble(self.leader, observations, pods)
        later = any(each.term > self.leader.term for each in observations)
        if reason is None and not later:
            self._trouble = None
            return
        trouble = self._trouble or _Trouble(began_s=now_s, reason=reason or LEADER_LOST)
        if later and trouble.later_term_s is None:
            trouble = replace(trouble, later_term_s=now_s)
        self._trouble = trouble

    def proven(self, now_s: float, at: datetime, leader: Leader) -> tuple[PhaseTime, ...]:
        """Note who leads now.

        Returns the phases of a failover that ended with it, as the other methods do.
        """
        if leader == self.leader:
            self._seen_leading = True
            return ()
        change, phases = self._change_to(leader, now_s, at)
        self._begin_relabelling(change, now_s)
        self.leader, self._seen_leading, self._trouble = leader, True, None
        return phases

    def relabelled(self, now_s: float) -> tuple[PhaseTime, ...]:
        """Note that the labels are right."""
        if self._step_began_s is None or self.changes[0].relabel_s is not None:
            return ()
        seconds = now_s - self._step_began_s
        self._step_began_s = now_s
        self._amend(replace(self.changes[0], relabel_s=seconds))
        return self._of_failover(PhaseTime(phase="relabel", seconds=seconds))

    def endpoints_synced(self, now_s: float) -> tuple[PhaseTime, ...]:
        """Note that the Service is right, which ends the change."""
        if self._step_began_s is None or self.changes[0].relabel_s is None:
            return ()
        seconds = now_s - self._step_began_s
        self._amend(replace(self.changes[0], endpoints_s=seconds))
        self._step_began_s = None
        total_s = now_s - (self._change_began_s or now_s)
        return self._of_failover(
            PhaseTime(phase="endpoints", seconds=seconds), PhaseTime(phase="total", seconds=total_s)
        )

    def _change_to(
        self, leader: Leader, now_s: float, at: datetime
    ) -> tuple[LeaderChange, tuple[PhaseTime, ...]]:
        change = LeaderChange(
            from_member=self.leader.member_id if self.leader else "",
            to_member=leader.member_id,
            term=leader.term,
            reason=FIRST_LEADER if self.leader is None else FOUND_AT_START,
            at=at,
        )
        self._change_began_s = None
        if not self._seen_leading:
            return change, ()
        trouble = self._trouble or _Trouble(began_s=now_s, reason=LEADER_STEPPED_DOWN)
        noticed_s = now_s if trouble.later_term_s is None else trouble.later_term_s
        detect_s, elect_s = noticed_s - trouble.began_s, now_s - noticed_s
        self._change_began_s = trouble.began_s
        change = replace(change, reason=trouble.reason, detect_s=detect_s, elect_s=elect_s)
        return change, (
            PhaseTime(phase="detect", seconds=detect_s),
            PhaseTime(phase="elect", seconds=elect_s),
        )

    def _of_failover(self, *phases: PhaseTime) -> tuple[PhaseTime, ...]:
        """Leave out what was no failover: a first leader, and one found at the start."""
        return phases if self._change_began_s is not None else ()

    def _begin_relabelling(self, change: LeaderChange, now_s: float) -> None:
        self.changes = (change, *self.changes)[:CHANGES_MAX]
        self._step_began_s = now_s

    def _amend(self, change: LeaderChange) -> None:
        self.changes = (change, *self.changes[1:])


def _sign_of_trouble(
    leader: Leader, observations: Sequence[Observation], pods: Sequence[PodView]
) -> str | None:
    pod = next((each for each in pods if each.member_id == leader.member_id), None)
    if pod is None or pod.leaving:
        return POD_REPLACED
    own = next((each for each in observations if each.pod_uid == pod.uid), None)
    if own is None:
        return POD_REPLACED
    if not own.answers:
        return LEADER_LOST
    if not own.master or own.term != leader.term:
        return LEADER_STEPPED_DOWN
    return None
