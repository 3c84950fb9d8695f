"""Determines the leader from the members' answers. Pure.

The rules:

- A leader that answers counts only if it reports that its first entry of the term is committed.
- Only the highest claimed term counts. A deposed leader that is cut off may still claim an old one.
- A term below the highest term annotation of the pods (`floor`) never counts: an operator has
  already acted on a later term.
- A term never counts once a majority is in a later one: its leader can no longer commit.
- A leader that does not answer the operator counts if a majority names it in that term: clients may
  reach it although the operator cannot.
"""

from collections import Counter
from collections.abc import Sequence

from dledger_operator.api_objects import PodView
from dledger_operator.observed_state import Leader, Membership, Observation


def leaders_of_highest_term(
    pods: Sequence[PodView], observations: Sequence[Observation], membership: Membership
) -> list[Leader]:
    """Return the proven leader, if any. Only answers of those pods that have an address count.

    Majorities are counted among voters. A leader's own claim counts whether or not `membership`
    lists it as a voter: it may have been promoted just now, or be about to be removed.

    Two leaders violate Raft's election safety: both are returned, and the caller must trust
    neither.
    """
    floor = max((pod.term for pod in pods), default=-1)
    present = {pod.uid: pod for pod in pods}
    current = [
        each for each in observations if each.pod_uid in present and present[each.pod_uid].ip
    ]
    claims = {
        claim
        for claim in _own_claims(current) | _named_claims(present, current, membership)
        if claim.term >= floor and not is_superseded(claim.term, current, membership)
    }
    highest = max((claim.term for claim in claims), default=-1)
    return sorted(claim for claim in claims if claim.term == highest)


def is_superseded(term: int, observations: Sequence[Observation], membership: Membership) -> bool:
    """Return whether a majority has been observed in a later term."""
    later = {each.member_id for each in observations if each.term > term}
    return len(later & membership.voters) >= membership.quorum


def disproved(pod: PodView, observations: Sequence[Observation], membership: Membership) -> bool:
    """Return whether a pod labeled as master certainly no longer leads its term.

    Silence is no proof: clients may reach a leader that the operator cannot.
    """
    if is_superseded(pod.term, observations, membership):
        return True
    own = next((each for each in observations if each.pod_uid == pod.uid), None)
    return own is not None and own.answers and not own.master and own.term >= pod.term


def _own_claims(observations: Sequence[Observation]) -> set[Leader]:
    return {
        Leader(term=each.term, member_id=each.member_id)
        for each in observations
        if each.answers and each.master and each.leader_id == each.member_id
    }


def _named_claims(
    pods: dict[str, PodView], observations: Sequence[Observation], membership: Membership
) -> set[Leader]:
    """Return the leaders that a majority names but that do not answer themselves.

    The pod of such a leader must be ready, so that the kubelet reaches it. Otherwise the answers of
    the others may refer to a pod that has been replaced.
    """
    names = Counter(
        Leader(term=each.term, member_id=each.leader_id)
        for each in observations
        if each.answers and each.leader_id and each.member_id in membership.voters
    )
    silent = {pod.member_id for pod in pods.values() if pod.ready} - {
        each.member_id for each in observations if each.answers
    }
    return {
        leader
        for leader, count in names.items()
        if count >= membership.quorum and leader.member_id in silent
    }
