"""Distinguishes the pods of a group's members from pods that only carry its label. Pure.

A member's pod is owned by the group's StatefulSet and has the name of one of its ordinals. Anyone
who may create pods can give one the group's label. The answers of such a pod are ignored. If it has
the name of a member's pod, it is fenced like one all the same: it may be left of a StatefulSet that
was deleted, and another process of the operator may still believe it.

A term annotation is ignored, too, if it is above the term of every member: the operator
writes it after a majority was in that term, and members never forget a term.
"""

from collections.abc import Container, Mapping, Sequence
from typing import Any

from dledger_formats.http.status import NodeStatus
from dledger_operator import names
from dledger_operator.api_objects import PodView
from dledger_operator.behaviors.leader.leadership import leaders_of_highest_term
from dledger_operator.observed_state import Membership, Observation


def is_member(pod: PodView, group: str, stateful_set_uids: Container[str]) -> bool:
    """Return whether a pod is a member's. `stateful_set_uids` holds the uid of the group's
    StatefulSet; it is empty while there is none.
    """
    owned = bool(pod.owner_uid) and pod.owner_uid in stateful_set_uids
    return owned and is_named_as_member(pod, group)


def is_named_as_member(pod: PodView, group: str) -> bool:
    """Return whether a pod has the name of a member's pod."""
    ordinal = names.ordinal(pod.member_id)
    return ordinal >= 0 and pod.name == names.pod(group, ordinal)


def is_of_stateful_set(pod: Mapping[str, Any], group: str) -> bool:
    """Return whether the pod of a watch event names the group's StatefulSet as its owner."""
    owners = pod["metadata"].get("ownerReferences") or []
    return any((each["kind"], each["name"]) == ("StatefulSet", group) for each in owners)


def overstated(
    pods: Sequence[PodView], observations: Sequence[Observation], membership: Membership
) -> tuple[PodView, ...]:
    """Return the pods whose term annotation hides a leader: it is above every observed term."""
    highest = max((each.term for each in observations), default=-1)
    above = [pod for pod in pods if pod.term > highest]
    if not above or not any(each.answers and each.master for each in observations):
        return ()
    return () if leaders_of_highest_term(pods, observations, membership) else tuple(above)


def forged(
    pods: Sequence[PodView], answers: Mapping[str, NodeStatus], membership: Membership
) -> tuple[int, tuple[PodView, ...]]:
    """Return the highest term of the members, and the pods whose annotation is above it.

    `answers` by pod uid must have been asked for after the LIST that gave `pods`: a term that was
    annotated before the LIST was reached by a majority before it. Nothing counts as forged while a
    voter does not answer, or an annotated pod that has an address: the voters that the operator
    knows may be out of date, and the member of that pod may lead. Other pods need not answer: those
    of new members may wait for a node for days.
    """
    known = [answers[pod.uid] for pod in pods if pod.uid in answers]
    voters = membership.voters.union(*(answer.voters for answer in known))
    if not known or not voters <= {answer.self_id for answer in known}:
        return -1, ()
    highest = max(answer.term for answer in known)
    wrong = tuple(pod for pod in pods if pod.term > highest)
    if any(pod.ip and pod.uid not in answers for pod in wrong):
        return -1, ()
    return highest, wrong
