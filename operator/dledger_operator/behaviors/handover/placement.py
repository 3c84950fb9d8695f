"""Decides whether the leadership should be with another member: off a node that is being emptied,
and with the preferred leader. Pure.

A node that is being emptied comes first, and at once: its pods are about to be evicted. The
preferred leader gets the leadership once it has been able to lead for a while, so that a member
that comes and goes does not take it each time. A member that has lost it lately must wait longer
(`settling`). A member on a node that is being emptied is not able to lead, even if it is preferred.
Nor is a member whose pod a roll is about to replace: the roll would move the leadership again,
perhaps to where it came from. If the roll has halted, such a member comes last, since it may be
long until somebody corrects the spec. So after each handover no rule asks for another one, which
`tests/kube/test_placement.py` and `test_roll_and_placement_model.py` check for all states.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from dledger_formats.protocol.leadership_transfer import TRANSFER_LAG_ENTRIES_MAX
from dledger_operator import reasons
from dledger_operator.api_objects import PodView
from dledger_operator.behaviors.handover.candidates import Candidate, Candidates, lags
from dledger_operator.behaviors.handover.nodes import Nodes
from dledger_operator.behaviors.handover.settling import settle_s
from dledger_operator.behaviors.steps import Wait
from dledger_operator.observed_state import Leader
from dledger_operator.problem import Problem
from dledger_operator.spec.preferred_leader import PreferredLeader

NO_PREFERENCE: Final = "NoPreference"
PREFERRED: Final = "Preferred"
NODE_EMPTIED: Final = "NodeEmptied"
PREFERRED_LEADER: Final = "PreferredLeader"
NODES_UNKNOWN: Final = "NodesUnknown"
PREFERRED_UNABLE: Final = "PreferredUnable"
SETTLING: Final = "Settling"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a member runs."""

    node: str = ""
    known: bool = False
    """Whether the node is known, so that a drain of it would be noticed."""
    emptied: str = ""
    """Why the node is being emptied; empty if it is not."""
    preferred: bool = False
    """Whether the member is a preferred leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementState:
    """The input of the decision."""

    candidates: Candidates
    places: Mapping[str, Place]
    """By member id."""
    preference: PreferredLeader | None
    nodes_readable: bool
    able_s: Mapping[str, float]
    """For how many seconds each member has been able to lead, as far as this operator has seen."""
    refused: frozenset[str] = frozenset()
    """The members to which the leader did not hand over a moment ago."""
    losses: Mapping[str, int] = field(default_factory=dict)
    """How often each member has lately lost the leadership, other than by handing over."""
    paused: bool = False
    rolling: bool = False
    """Whether pods are being replaced, which moves the leadership anyway."""
    roll_halted: bool = False
    """Whether that roll replaces no pod and moves no leadership until somebody acts."""
    scaling: bool = False
    """Whether members are being added or removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Ask the leader to hand over."""

    leader: Leader
    to: str
    reason: str
    """`NODE_EMPTIED` or `PREFERRED_LEADER`."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """The leader is where it should be."""

    reason: str
    message: str


Decision: TypeAlias = Move | Stay | Wait
"""`Wait` means that another member should lead, but the leadership cannot be moved now."""


def find_places(
    pods: Sequence[PodView], nodes: Nodes, preference: PreferredLeader | None
) -> dict[str, Place]:
    """Return where each member runs, by member id."""
    return {pod.member_id: _place(pod, nodes, preference) for pod in pods}


def _place(pod: PodView, nodes: Nodes, preference: PreferredLeader | None) -> Place:
    node = nodes.get(pod.node)
    labels = preference.node_labels if preference else {}
    by_node = bool(node and labels) and all(
        node is not None and node.labels.get(key) == value for key, value in labels.items()
    )
    return Place(
        node=pod.node,
        known=node is not None,
        emptied=node.why_emptied(pod) if node else "",
        preferred=by_node or (preference is not None and preference.member_id == pod.member_id),
    )


def decide(state: PlacementState) -> Decision:
    """Return where the leadership should go, or why it stays."""
    leader = state.candidates.leader
    if leader is None:
        return Wait(Problem(reason=reasons.NO_LEADER, message="no member leads"))
    here = state.places.get(leader.member_id, Place())
    if here.emptied:
        decision = _off_the_node(state, leader, here)
    elif state.preference is None:
        message = "the leader's node is not being emptied, and spec.preferredLeader is not set"
        return Stay(reason=NO_PREFERENCE, message=message)
    elif here.preferred:
        message = f"{leader.member_id} leads: spec.preferredLeader asks for {state.preference}"
        return Stay(reason=PREFERRED, message=message)
    else:
        decision = _to_the_preferred(state, leader, state.preference)
    if isinstance(decision, Move) and state.paused:
        message = f"spec.paused is true, so the leadership stays: {decision.message}"
        return Wait(Problem(reason=reasons.PAUSED, message=message))
    return decision


def moved_back(state: PlacementState, target: str) -> Problem | None:
    """Return why a member that got the leadership now would lose it again; else None."""
    leader = Leader(term=0, member_id=target)
    after = replace(
        state,
        candidates=replace(state.candidates, leader=leader),
        able_s=dict.fromkeys(state.places, float("inf")),
        paused=False,
        rolling=False,
        scaling=False,
    )
    decision = decide(after)
    if not isinstance(decision, Move):
        return None
    message = f"the operator would hand over to {decision.to} again, as it would find that "
    return Problem(reason=decision.reason, message=message + decision.message)


def _off_the_node(state: PlacementState, leader: Leader, here: Place) -> Decision:
    why = f"{leader.member_id} leads on node {here.node}, which is being emptied: {here.emptied}"
    able = [each for each in _others(state, leader) if not _obstacle(state, each)]
    if not able:
        message = f"{why}; no other member can take over: {_obstacles(state, leader)}"
        return Wait(Problem(reason=reasons.NO_SUCCESSOR, message=message))
    goes_on = state.rolling and not state.roll_halted
    lasting = [each for each in able if not (goes_on and each.behind)]
    if not lasting:
        listed = ", ".join(each.member_id for each in able)
        message = f"{why}; a roll is under way and replaces the pod of {listed} first"
        return Wait(Problem(reason=reasons.ROLL_UNDER_WAY, message=message))

    def rank(each: Candidate) -> tuple[bool, bool, bool, int, str]:
        name, moves_again = each.member_id, state.rolling and each.behind
        preferred = state.places[name].preferred
        return (name in state.refused, moves_again, not preferred, each.lag_entries or 0, name)

    best = min(lasting, key=rank)
    return Move(leader=leader, to=best.member_id, reason=NODE_EMPTIED, message=why)


def _to_the_preferred(
    state: PlacementState, leader: Leader, preference: PreferredLeader
) -> Decision:
    why = f"{leader.member_id} leads, and spec.preferredLeader asks for {preference}"
    if preference.node_labels and not state.nodes_readable:
        message = (
            f"{why}; the operator does not read Nodes, so it does not know where members run: "
            "install the chart with watchNodes=true, or prefer a member by its id"
        )
        return Wait(Problem(reason=NODES_UNKNOWN, message=message))
    preferred = [each for each in _others(state, leader) if state.places[each.member_id].preferred]
    able = [each for each in preferred if not _obstacle(state, each)]
    if not able:
        listed = "; ".join(filter(None, (_obstacle(state, each) for each in preferred)))
        message = f"{why}; {listed or 'no other member is one'}"
        return Wait(Problem(reason=PREFERRED_UNABLE, message=message))
    if state.rolling or state.scaling:
        reason, what = (
            (reasons.ROLL_UNDER_WAY, "a roll") if state.rolling else (reasons.SCALING, "scaling")
        )
        return Wait(Problem(reason=reason, message=f"{why}; {what} is under way and goes first"))
    steady = [
        each
        for each in able
        if state.able_s.get(each.member_id, 0.0) >= _settle_s(state, preference, each)
    ]
    if not steady:
        listed = "; ".join(_when_settled(state, preference, each) for each in able)
        return Wait(Problem(reason=SETTLING, message=f"{why}; {listed}"))
    best = min(steady, key=lambda each: (each.behind, each.lag_entries or 0, each.member_id))
    return Move(leader=leader, to=best.member_id, reason=PREFERRED_LEADER, message=why)


def _settle_s(state: PlacementState, preference: PreferredLeader, member: Candidate) -> float:
    return settle_s(preference.stable_for_s, state.losses.get(member.member_id, 0))


def _when_settled(state: PlacementState, preference: PreferredLeader, member: Candidate) -> str:
    """Return when a preferred leader gets the leadership, in words."""
    settled_s = _settle_s(state, preference, member)
    says = (
        f"{member.member_id} gets the leadership once it has been able to lead for {settled_s:g} s"
    )
    if settled_s == preference.stable_for_s:
        return says
    losses = state.losses[member.member_id]
    return f"{says}: it has lately lost it {losses} {'time' if losses == 1 else 'times'}"


def able_members(state: PlacementState) -> frozenset[str]:
    """Return the members that could lead where they run now."""
    return frozenset(
        each.member_id for each in state.candidates.members if not _obstacle(state, each)
    )


def _others(state: PlacementState, leader: Leader) -> list[Candidate]:
    return [each for each in state.candidates.members if each.member_id != leader.member_id]


def _obstacle(state: PlacementState, candidate: Candidate) -> str:
    """Return why a member should not get the leadership; empty if it may."""
    problem = candidate.problem or lags(candidate, TRANSFER_LAG_ENTRIES_MAX)
    if problem:
        return problem.message
    place = state.places.get(candidate.member_id, Place())
    if state.nodes_readable and not place.known:
        return f"the node of {candidate.member_id} is not known yet"
    if place.emptied:
        return f"node {place.node} of {candidate.member_id} is being emptied: {place.emptied}"
    return ""


def _obstacles(state: PlacementState, leader: Leader) -> str:
    listed = [_obstacle(state, each) for each in _others(state, leader)]
    return "; ".join(filter(None, listed)) or "there is none"
