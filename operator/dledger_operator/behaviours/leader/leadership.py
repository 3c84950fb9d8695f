"""Whom to believe: from what members say to the one that leads. Pure.

The rules, and what they rule out:

- a leader that answers must prove itself: only its own word that its first entry of the term is
  committed counts. An old leader that is cut off may still call itself leader, but
- only the highest term counts, and no term below one that was acted upon before (`floor`), and
- no term that a majority has left behind: its leader can commit nothing any more;
- a leader that does not answer the operator is believed when a majority names it in that very term:
  it serves its clients although the operator cannot reach it.
"""

from collections import Counter
from collections.abc import Sequence

from dledger_operator.facts import Electorate, Leader, Observation
from dledger_operator.views import PodView


def leaders_of_highest_term(
    pods: Sequence[PodView], observations: Sequence[Observation], electorate: Electorate
) -> list[Leader]:
    """Find the proven leader: one, or none; only what these pods said counts.

    A majority is one of voters. A leader's own word counts whoever it is: it may vote since a
    moment ago, or no more, because it is about to leave.

    Two are a broken promise of Raft: both are returned, and neither is to be believed.
    """
    floor = max((pod.term for pod in pods), default=-1)
    present = {pod.uid: pod for pod in pods}
    said = [each for each in observations if each.pod_uid in present]
    claims = {
        claim
        for claim in _own_claims(said) | _named_claims(present, said, electorate)
        if claim.term >= floor and not left_behind(claim.term, said, electorate)
    }
    highest = max((claim.term for claim in claims), default=-1)
    return sorted(claim for claim in claims if claim.term == highest)


def left_behind(term: int, observations: Sequence[Observation], electorate: Electorate) -> bool:
    """Whether a majority has been seen in a later term."""
    later = {each.member_id for each in observations if each.term > term}
    return len(later & electorate.voters) >= electorate.quorum


def disproved(pod: PodView, observations: Sequence[Observation], electorate: Electorate) -> bool:
    """Whether a pod that is labelled as the leader of a term surely does not lead it any more.

    Silence disproves nothing: a leader that only the operator cannot reach still serves.
    """
    if left_behind(pod.term, observations, electorate):
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
    pods: dict[str, PodView], observations: Sequence[Observation], electorate: Electorate
) -> set[Leader]:
    """Leaders that a majority names and that do not answer for themselves.

    The pod of such a leader must be ready: the kubelet reaches it. Otherwise what the others still
    say is of a pod that has been replaced.
    """
    names = Counter(
        Leader(term=each.term, member_id=each.leader_id)
        for each in observations
        if each.answers and each.leader_id and each.member_id in electorate.voters
    )
    silent = {pod.member_id for pod in pods.values() if pod.ready} - {
        each.member_id for each in observations if each.answers
    }
    return {
        leader
        for leader, count in names.items()
        if count >= electorate.quorum and leader.member_id in silent
    }
