"""Where the leadership should be: off nodes that are being emptied, and with the preferred leader.

The properties hold for all states: a handover ends where no rule asks for another one, only members
that can lead get the leadership, and a switchover to where it would not stay is known before.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger_operator.behaviors.handover.candidates import Candidate, Candidates
from dledger_operator.behaviors.handover.placement import (
    Move,
    Place,
    PlacementState,
    Stay,
    able_members,
    decide,
    moved_back,
)
from dledger_operator.behaviors.steps import Wait
from dledger_operator.observed_state import Leader
from dledger_operator.problem import Problem
from dledger_operator.spec.preferred_leader import PreferredLeader

MEMBERS = ("n0", "n1", "n2")
N0 = PreferredLeader(member_id="n0", node_labels={}, stable_for_s=60)
ZONE_A = PreferredLeader(node_labels={"topology.kubernetes.io/zone": "a"}, stable_for_s=60)
CORDONED = "it is cordoned"
LONG = dict.fromkeys(MEMBERS, 1000.0)


def candidate(member_id: str, **fields: Any) -> Candidate:
    values: dict[str, Any] = {
        "member_id": member_id, "pod": f"flights-{member_id[1:]}", "problem": None,
        "lag_entries": 0,
    }  # fmt: skip
    return Candidate(**values | fields)


def place(member_id: str, **fields: Any) -> Place:
    return Place(**{"node": f"node-{member_id[1:]}", "known": True} | fields)


def state(
    leader: str | None = "n1",
    candidates: dict[str, dict[str, Any]] | None = None,
    places: dict[str, dict[str, Any]] | None = None,
    **fields: Any,
) -> PlacementState:
    """A group of three that n1 leads, in which every member could."""
    told, where = candidates or {}, places or {}
    values: dict[str, Any] = {
        "candidates": Candidates(
            leader=Leader(term=7, member_id=leader) if leader else None,
            members=[candidate(each, **told.get(each, {})) for each in MEMBERS],
            membership_changing=False,
        ),
        "places": {each: place(each, **where.get(each, {})) for each in MEMBERS},
        "preference": None,
        "nodes_readable": True,
        "able_s": LONG,
    }
    return PlacementState(**values | fields)


def preferring_n0(**fields: Any) -> PlacementState:
    places = {"n0": {"preferred": True} | fields.pop("n0", {})}
    return state(preference=N0, places=places | fields.pop("places", {}), **fields)


def test_a_leader_stays_if_nothing_is_preferred_and_no_node_is_emptied() -> None:
    assert decide(state()) == Stay(
        reason="NoPreference",
        message="the leader's node is not being emptied, and spec.preferredLeader is not set",
    )


def test_a_leader_leaves_a_node_that_is_being_emptied_at_once() -> None:
    decision = decide(state(places={"n1": {"emptied": CORDONED}}, able_s={}))

    assert isinstance(decision, Move)
    assert (decision.to, decision.reason) == ("n0", "NodeEmptied")
    assert decision.message == "n1 leads on node node-1, which is being emptied: it is cordoned"


def test_a_leader_does_not_move_to_another_node_that_is_being_emptied() -> None:
    emptied = {each: {"emptied": CORDONED} for each in ("n0", "n1")}

    decision = decide(state(places=emptied))

    assert isinstance(decision, Move)
    assert decision.to == "n2"


def test_a_leader_stays_if_all_nodes_are_being_emptied() -> None:
    decision = decide(state(places={each: {"emptied": CORDONED} for each in MEMBERS}))

    assert isinstance(decision, Wait)
    assert decision.reason == "NoSuccessor"
    assert "node node-0 of n0 is being emptied: it is cordoned" in decision.message


def test_a_leader_does_not_move_to_a_member_that_lags_or_does_not_answer() -> None:
    silent = Problem(reason="MemberSilent", message="n2 does not answer")
    unable = {"n0": {"lag_entries": 1001}, "n2": {"problem": silent}}

    decision = decide(state(candidates=unable, places={"n1": {"emptied": CORDONED}}))

    assert isinstance(decision, Wait)
    assert decision.reason == "NoSuccessor"
    assert decision.message.endswith(
        "no other member can take over: n0 lacks 1001 committed entries, and may lack 1000; n2 "
        "does not answer"
    )


def test_off_a_node_the_preferred_member_comes_first_then_the_one_that_lacks_least() -> None:
    emptied = {"n1": {"emptied": CORDONED}}
    lagging = {"n0": {"lag_entries": 9}}

    assert decide(state(places=emptied, candidates=lagging)).to == "n2"  # type: ignore[union-attr]
    preferring = preferring_n0(places=emptied, candidates=lagging)
    assert decide(preferring).to == "n0"  # type: ignore[union-attr]


def test_the_preferred_leader_gets_the_leadership_once_it_is_steady() -> None:
    decision = decide(preferring_n0(able_s={"n0": 60.0}))

    assert isinstance(decision, Move)
    assert (decision.to, decision.reason) == ("n0", "PreferredLeader")


def test_a_preferred_leader_that_has_just_come_back_waits() -> None:
    decision = decide(preferring_n0(able_s={"n0": 59.0}))

    assert isinstance(decision, Wait)
    assert decision.reason == "Settling"
    assert decision.message == (
        "n1 leads, and spec.preferredLeader asks for member n0; n0 gets the leadership once it has "
        "been able to lead for 60 s"
    )


def test_a_preferred_leader_on_a_node_that_is_being_emptied_does_not_get_the_leadership() -> None:
    decision = decide(preferring_n0(n0={"emptied": CORDONED}))

    assert isinstance(decision, Wait)
    assert decision.reason == "PreferredUnable"
    assert "node node-0 of n0 is being emptied" in decision.message


@pytest.mark.parametrize(
    ("field", "reason"), [("rolling", "RollUnderWay"), ("scaling", "Scaling"), ("paused", "Paused")]
)
def test_a_preference_waits_for_what_goes_first(field: str, reason: str) -> None:
    decision = decide(replace(preferring_n0(), **{field: True}))

    assert isinstance(decision, Wait)
    assert decision.reason == reason


def test_without_the_permission_to_read_nodes_a_zone_says_what_to_do() -> None:
    decision = decide(state(preference=ZONE_A, nodes_readable=False))

    assert isinstance(decision, Wait)
    assert decision.reason == "NodesUnknown"
    assert "install the chart with watchNodes=true" in decision.message


def test_without_the_permission_to_read_nodes_a_member_can_be_preferred() -> None:
    unknown = {each: {"known": False} for each in ("n1", "n2")}
    decision = decide(preferring_n0(n0={"known": False}, places=unknown, nodes_readable=False))

    assert isinstance(decision, Move)


def test_nothing_is_decided_without_a_leader() -> None:
    assert decide(state(None)) == Wait(Problem(reason="NoLeader", message="no member leads"))


BEHIND = {each: {"behind": True} for each in MEMBERS}


def test_off_a_node_the_leadership_waits_for_a_roll_that_goes_on() -> None:
    decision = decide(state(candidates=BEHIND, places={"n1": {"emptied": CORDONED}}, rolling=True))

    assert isinstance(decision, Wait)
    assert decision.reason == "RollUnderWay"


def test_off_a_node_the_leadership_does_not_wait_for_a_roll_that_has_halted() -> None:
    halted = state(
        candidates=BEHIND, places={"n1": {"emptied": CORDONED}}, rolling=True, roll_halted=True
    )

    decision = decide(halted)

    assert isinstance(decision, Move)
    assert decision.to == "n0"


def test_while_a_roll_is_halted_a_pod_that_it_has_replaced_comes_first() -> None:
    of_the_new_revision = BEHIND | {"n2": {"lag_entries": 9}}
    halted = state(
        candidates=of_the_new_revision,
        places={"n1": {"emptied": CORDONED}},
        rolling=True,
        roll_halted=True,
    )

    assert decide(halted).to == "n2"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("preference", "words"),
    [
        (N0, "member n0"),
        (ZONE_A, "a member in zone a"),
        (
            PreferredLeader(node_labels={"disk": "fast", "cpu": "new"}, stable_for_s=1),
            "a member on a node with cpu=new, disk=fast",
        ),
    ],
)
def test_a_preference_is_named_in_the_words_of_the_spec(
    preference: PreferredLeader, words: str
) -> None:
    assert str(preference) == words


problems = st.sampled_from((None, None, Problem(reason="MemberSilent", message="silent")))
candidates = st.fixed_dictionaries(
    {
        "problem": problems,
        "lag_entries": st.sampled_from((0, 10, 1000, 1001, None)),
        "behind": st.booleans(),
    }
)
places = st.fixed_dictionaries(
    {
        "known": st.sampled_from((True, True, True, False)),
        "emptied": st.sampled_from(("", "", CORDONED)),
        "preferred": st.booleans(),
    }
)
states = st.builds(
    state,
    leader=st.sampled_from(MEMBERS),
    candidates=st.fixed_dictionaries(dict.fromkeys(MEMBERS, candidates)),
    places=st.fixed_dictionaries(dict.fromkeys(MEMBERS, places)),
    preference=st.sampled_from((None, N0, ZONE_A)),
    nodes_readable=st.booleans(),
    able_s=st.fixed_dictionaries(dict.fromkeys(MEMBERS, st.sampled_from((0.0, 59.0, 60.0)))),
    rolling=st.booleans(),
    roll_halted=st.booleans(),
    scaling=st.booleans(),
    paused=st.booleans(),
)


def led_by(before: PlacementState, member_id: str) -> PlacementState:
    """The state after a member got the leadership, and after any time."""
    leader = Leader(term=8, member_id=member_id)
    return replace(before, candidates=replace(before.candidates, leader=leader), able_s=LONG)


@settings(max_examples=1000)
@given(before=states)
def test_a_handover_ends_where_no_rule_asks_for_another_one(before: PlacementState) -> None:
    decision = decide(before)
    if isinstance(decision, Move):
        after = decide(led_by(replace(before, rolling=False, scaling=False), decision.to))
        if before.rolling or before.scaling:
            # Off a node at once; the preferred leader may get its turn after the roll.
            assert not isinstance(after, Move) or after.reason == "PreferredLeader"
            assert not isinstance(after, Move) or not before.places[decision.to].preferred
        else:
            assert not isinstance(after, Move)


@settings(max_examples=1000)
@given(before=states)
def test_only_a_member_that_can_lead_gets_the_leadership(before: PlacementState) -> None:
    decision = decide(before)
    if isinstance(decision, Move):
        assert decision.to in able_members(before) - {decision.leader.member_id}
        assert not before.places[decision.to].emptied
        assert not before.paused
        target = before.candidates.get(decision.to)
        assert target is not None
        goes_on = before.rolling and not before.roll_halted
        assert not (goes_on and target.behind), "a roll would move the leadership again"


@settings(max_examples=1000)
@given(before=states, target=st.sampled_from(MEMBERS))
def test_a_switchover_is_refused_exactly_if_its_result_would_not_last(
    before: PlacementState, target: str
) -> None:
    calm = replace(before, rolling=False, scaling=False, paused=False)
    after = decide(led_by(calm, target))

    refused = moved_back(before, target)

    assert (refused is not None) == isinstance(after, Move)
    assert refused is None or refused.reason == after.reason


@settings(max_examples=300)
@given(before=states, cordons=st.lists(st.tuples(st.sampled_from(MEMBERS), st.booleans())))
def test_the_leadership_moves_at_most_once_for_each_change_of_a_node(
    before: PlacementState, cordons: list[tuple[str, bool]]
) -> None:
    now = replace(before, rolling=False, scaling=False, paused=False, able_s=LONG)
    for member_id, cordoned in cordons:
        changed = replace(now.places[member_id], emptied=CORDONED if cordoned else "")
        now = replace(now, places={**now.places, member_id: changed})
        moves = 0
        while isinstance(decision := decide(now), Move):
            now, moves = led_by(now, decision.to), moves + 1
            assert moves <= 1
