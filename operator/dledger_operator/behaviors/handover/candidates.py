"""Decides which members could lead now, from their pods and their latest answers. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dledger_formats.http.status import NodeStatus, StorageState
from dledger_operator import reasons
from dledger_operator.api_objects import PodView
from dledger_operator.behaviors.members.membership import proven_leader
from dledger_operator.observed_state import Leader
from dledger_operator.problem import Problem

NOT_A_VOTER: Final = "NotAVoter"
MEMBER_MISSING: Final = "MemberMissing"
MEMBER_LEAVING: Final = "MemberLeaving"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A member that leads or might lead."""

    member_id: str
    pod: str
    problem: Problem | None
    """Why it could not lead now, even if it lacked no entries; None if it could."""
    lag_entries: int | None
    """How many committed entries it lacks, by the leader's answer; None if that is not known."""
    behind: bool = False
    """Whether a roll that is under way will replace its pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """All members that lead or might lead, and the leader."""

    leader: Leader | None
    """The proven leader of the highest term, by its own answer."""
    members: Sequence[Candidate]
    membership_changing: bool
    """Whether a change of members is not committed yet."""

    @classmethod
    def nobody(cls) -> "Candidates":
        """Return the candidates of a group without pods."""
        return cls(leader=None, members=(), membership_changing=False)

    def get(self, member_id: str) -> Candidate | None:
        """Return a member; None if it has no pod."""
        return next((each for each in self.members if each.member_id == member_id), None)


def find_candidates(
    pods: Sequence[PodView],
    answers: Mapping[str, NodeStatus],
    *,
    staying: Sequence[str],
    rolling_out: frozenset[str] = frozenset(),
) -> Candidates:
    """Return the members with a pod. `answers` are by pod uid. `staying` are the members that the
    spec asks for, `rolling_out` the names of the pods that a roll will replace.
    """
    latest = {pod.uid: answers[pod.uid] for pod in pods if pod.uid in answers}
    leading = proven_leader(list(latest.values()))
    members = [
        Candidate(
            member_id=pod.member_id,
            pod=pod.name,
            problem=_problem(pod, latest.get(pod.uid), leading, staying),
            lag_entries=leading.lacks_committed(pod.member_id) if leading else None,
            behind=pod.name in rolling_out,
        )
        for pod in pods
    ]
    return Candidates(
        leader=Leader(term=leading.term, member_id=leading.self_id) if leading else None,
        members=members,
        membership_changing=leading is not None
        and leading.membership_index > leading.committed_index,
    )


def lags(candidate: Candidate, entries_max: int) -> Problem | None:
    """Return the problem of a member that lacks too many entries; None if it does not."""
    if candidate.lag_entries is not None and candidate.lag_entries <= entries_max:
        return None
    lacks = (
        f"lacks {candidate.lag_entries} committed entries, and may lack {entries_max}"
        if candidate.lag_entries is not None
        else "is not reached by the leader, which therefore cannot say how many entries it lacks"
    )
    return Problem(reason=reasons.MEMBER_LAGS, message=f"{candidate.member_id} {lacks}")


def _problem(
    pod: PodView, answer: NodeStatus | None, leading: NodeStatus | None, staying: Sequence[str]
) -> Problem | None:
    name = pod.member_id
    if leading is not None and name not in leading.voters:
        return Problem(reason=NOT_A_VOTER, message=f"{name} is no voter of the group")
    if name not in staying:
        message = f"{name} is to be removed: spec.replicas asks for {len(staying)} members"
        return Problem(reason=MEMBER_LEAVING, message=message)
    if pod.leaving:
        message = f"pod {pod.name} of {name} is being deleted"
        return Problem(reason=MEMBER_LEAVING, message=message)
    if answer is None:
        return Problem(reason=reasons.MEMBER_SILENT, message=f"{name} does not answer")
    peer = leading.follower(name) if leading else None
    full = answer.storage is StorageState.FULL or (peer is not None and peer.full)
    if answer.joining or full or not answer.ready:
        why = "its volume is full" if full else answer.reason or "it does not serve its role yet"
        return Problem(reason=reasons.MEMBER_NOT_READY, message=f"{name} is not ready: {why}")
    if not pod.ready:
        message = f"{name} is not ready: the readiness probe of pod {pod.name} does not succeed"
        return Problem(reason=reasons.MEMBER_NOT_READY, message=message)
    return None
