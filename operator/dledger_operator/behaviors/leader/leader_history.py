"""The history of a group's leaders, and the duration of each leader change by phase. Pure.

A leader change has four consecutive phases:

    detect      last message of the old leader -> the new leader stands for election
    elect       -> a new leader has proved itself
    relabel     -> the role labels match the new leader
    endpoints   -> the new leader is the only endpoint of the master Service

A group that is tested with canaries has a fifth time, firstWrite, from the last message of the old
leader until the new one has acknowledged a canary through the master Service.

The new leader reports why it stood, how long its old leader had been silent, and how long the
election took. So the time for which the operator or the API server was down counts as relabeling.

A leader that does not report this (of an earlier release, or unreachable) is timed by the
operator's own observations: detect begins with the first sign of a lost leader (silence, step-down,
its pod leaving) and ends when a member is observed in a later term. If the new leader knew no
leader when it stood, detect begins with that sign too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from dledger_formats.http.status import StoodBecause
from dledger_operator import reasons
from dledger_operator.api_objects import PodView
from dledger_operator.observed_state import Leader, LeaderChange, Observation, Victory

CHANGES_MAX: Final = 10
FIRST_LEADER: Final = "FirstLeader"
FOUND_AT_START: Final = "FoundAtStart"
LEADER_LOST: Final = "LeaderLost"
LEADER_STEPPED_DOWN: Final = "LeaderSteppedDown"
LEADERSHIP_TRANSFERRED: Final = "LeadershipTransferred"
_REASONS: Final = {
    StoodBecause.TRANSFER: LEADERSHIP_TRANSFERRED,
    StoodBecause.NO_HEARTBEAT: LEADER_LOST,
    StoodBecause.LEADER_LINK_LOST: LEADER_LOST,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTime:
    """The duration of a phase that was observed from start to end."""

    phase: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outage:
    """The time since the first sign of a lost leader."""

    began_s: float
    reason: str
    later_term_s: float | None = None


class LeaderHistory:
    """The leader of one group over time."""

    def __init__(self, changes: Sequence[LeaderChange]) -> None:
        """Continue from the changes in the group's status, newest first.

        The newest one names the last known leader, even if the group has none now.
        """
        self.changes = tuple(changes[:CHANGES_MAX])
        last = self.changes[0] if self.changes else None
        self.leader = Leader(term=last.term, member_id=last.to_member) if last else None
        self._seen_leading = False
        self._outage: _Outage | None = None
        self._step_began_s: float | None = None
        self._change_began_s: float | None = None

    def observe(
        self, now_s: float, observations: Sequence[Observation], pods: Sequence[PodView]
    ) -> None:
        """Record the first sign of a lost leader, and the first member in a later term."""
        if self.leader is None or not self._seen_leading:
            return
        reason = _sign_of_loss(self.leader, observations, pods)
        later = any(each.term > self.leader.term for each in observations)
        if reason is None and not later:
            self._outage = None
            return
        outage = self._outage or _Outage(began_s=now_s, reason=reason or LEADER_LOST)
        if later and outage.later_term_s is None:
            outage = replace(outage, later_term_s=now_s)
        self._outage = outage

    def proven(
        self,
        now_s: float,
        at: datetime,
        leader: Leader,
        victory: Victory | None = None,
        *,
        labeled: bool = False,
    ) -> tuple[PhaseTime, ...]:
        """Record the current leader, and how it won if that is known. Return the failover phases
        that ended with it. `labeled` says that its pod has the right labels already.

        `relabeled` and `endpoints_synced` return phases in the same way.
        """
        if leader == self.leader:
            self._seen_leading = True
            return ()
        is_first, is_found = self.leader is None, not self._seen_leading
        change, phases = self._change_to(leader, now_s, at, victory)
        self.changes = (change, *self.changes)[:CHANGES_MAX]
        # Labels that are right at the start were set by another operator at an unknown time.
        unknown = is_found and labeled and not is_first
        proved_s = min(now_s, victory.proved_s) if victory and not is_first else now_s
        self._step_began_s = None if unknown else proved_s
        self.leader, self._seen_leading, self._outage = leader, True, None
        return phases

    def relabeled(self, now_s: float) -> tuple[PhaseTime, ...]:
        """Record that the role labels match the leader."""
        if self._step_began_s is None or self.changes[0].relabel_s is not None:
            return ()
        seconds = now_s - self._step_began_s
        self._step_began_s = now_s
        self._amend(replace(self.changes[0], relabel_s=seconds))
        return self._of_failover(PhaseTime(phase="relabel", seconds=seconds))

    def endpoints_synced(self, now_s: float) -> tuple[PhaseTime, ...]:
        """Record that the master Service's endpoints match, which ends the change."""
        if self._step_began_s is None or self.changes[0].relabel_s is None:
            return ()
        seconds = now_s - self._step_began_s
        self._amend(replace(self.changes[0], endpoints_s=seconds))
        self._step_began_s = None
        total_s = now_s - (self._change_began_s or now_s)
        return self._of_failover(
            PhaseTime(phase="endpoints", seconds=seconds), PhaseTime(phase="total", seconds=total_s)
        )

    def wrote(self, now_s: float, term: int) -> tuple[PhaseTime, ...]:
        """Record that the leader of a term acknowledged a canary through the master Service."""
        began_s, leader = self._change_began_s, self.leader
        if began_s is None or leader is None or term != leader.term:
            return ()
        if self.changes[0].first_write_s is not None:
            return ()
        seconds = now_s - began_s
        self._amend(replace(self.changes[0], first_write_s=seconds))
        return (PhaseTime(phase="firstWrite", seconds=seconds),)

    def _change_to(
        self, leader: Leader, now_s: float, at: datetime, victory: Victory | None
    ) -> tuple[LeaderChange, tuple[PhaseTime, ...]]:
        change = LeaderChange(
            from_member=self.leader.member_id if self.leader else "",
            to_member=leader.member_id,
            term=leader.term,
            reason=FIRST_LEADER if self.leader is None else FOUND_AT_START,
            at=at,
        )
        self._change_began_s = None
        if self.leader is None:
            return change, ()
        reported = _REASONS.get(_cause(victory)) if victory else None
        if not self._seen_leading and (victory is None or reported is None):
            return change, ()
        outage = self._outage
        replaced = outage is not None and outage.reason == reasons.POD_REPLACED
        # A leader that hands over as its pod ends was not lost.
        if reported and (reported == LEADERSHIP_TRANSFERRED or not replaced):
            reason = reported
        else:
            reason = outage.reason if outage else LEADER_STEPPED_DOWN
        began_s, stood_s, proved_s = _times(now_s, outage, victory)
        self._change_began_s = began_s
        detect_s, elect_s = stood_s - began_s, proved_s - stood_s
        return replace(
            change,
            reason=reason,
            at=at - timedelta(seconds=now_s - proved_s),
            detect_s=detect_s,
            elect_s=elect_s,
        ), (
            PhaseTime(phase="detect", seconds=detect_s),
            PhaseTime(phase="elect", seconds=elect_s),
        )

    def _of_failover(self, *phases: PhaseTime) -> tuple[PhaseTime, ...]:
        """Drop the phases of a first leader, and of one found at the start with no known cause."""
        return phases if self._change_began_s is not None else ()

    def _amend(self, change: LeaderChange) -> None:
        self.changes = (change, *self.changes[1:])


def _cause(victory: Victory) -> StoodBecause:
    known = {each.value for each in StoodBecause}
    return StoodBecause(victory.stood_because if victory.stood_because in known else "NO_WINNER")


def _times(
    now_s: float, outage: _Outage | None, victory: Victory | None
) -> tuple[float, float, float]:
    """Return when the old leader was lost, when the new one stood, and when it proved itself."""
    first_sign_s = outage.began_s if outage else now_s
    if victory is None:
        later_s = outage.later_term_s if outage else None
        return first_sign_s, now_s if later_s is None else later_s, now_s
    proved_s = min(now_s, victory.proved_s)
    stood_s = proved_s - victory.election_s
    match _cause(victory):
        case StoodBecause.TRANSFER:
            began_s = stood_s
        case StoodBecause.NO_HEARTBEAT | StoodBecause.LEADER_LINK_LOST:
            began_s = stood_s - victory.silent_s
        case StoodBecause.NO_LEADER | StoodBecause.NO_WINNER:
            began_s = min(first_sign_s, stood_s)
    return began_s, stood_s, proved_s


def _sign_of_loss(
    leader: Leader, observations: Sequence[Observation], pods: Sequence[PodView]
) -> str | None:
    pod = next((each for each in pods if each.member_id == leader.member_id), None)
    if pod is None or pod.leaving:
        return reasons.POD_REPLACED
    own = next((each for each in observations if each.pod_uid == pod.uid), None)
    if own is None:
        return reasons.POD_REPLACED
    if not own.answers:
        return LEADER_LOST
    if not own.master or own.term != leader.term:
        return LEADER_STEPPED_DOWN
    return None
