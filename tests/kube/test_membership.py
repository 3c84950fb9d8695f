"""A group's voters and learners, from the leader's report or the group's status."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_kube.objects import group, leader_status, membership, node_status, pod
from dledger_kube.scaling_world import ScalingWorld
from dledger_operator import names
from dledger_operator.behaviors.members import observe
from dledger_operator.behaviors.members.membership import recorded_membership, reported_membership
from dledger_operator.behaviors.members.observed_members import MemberJudge, MemberReads
from dledger_operator.behaviors.members.scale_steps import next_step
from dledger_operator.behaviors.steps import SetPods

PREVIOUS = membership(3)
FORGED = ["n0", "n1", "n99999999"]
IDS = st.lists(
    st.from_regex(r"n[0-9]{1,9}", fullmatch=True)
    | st.sampled_from(["n0", "n6", "n7", "n06", "0", "n-1", "n²", "n٣", "", "n"])
    | st.text(max_size=9),
    max_size=12,
)


def test_the_leader_of_the_highest_term_determines_the_membership() -> None:
    deposed = leader_status("n0", term=6, voters=["n0"])
    leading = leader_status("n1", term=7, voters=["n0", "n1"], learners=["n2"])
    follower = node_status("n2", term=8, voters=["n9"])

    after = reported_membership([deposed, leading, follower], PREVIOUS)

    assert (after.voters, after.learners) == (frozenset({"n0", "n1"}), frozenset({"n2"}))


def test_the_membership_stays_the_same_without_a_leader() -> None:
    assert reported_membership([node_status("n0", voters=["n0"])], PREVIOUS) == PREVIOUS


def test_a_report_without_voters_is_ignored() -> None:
    assert reported_membership([leader_status()], PREVIOUS) == PREVIOUS


def test_the_status_records_voters_and_learners() -> None:
    members = [
        {"id": "n0", "membership": "Voter"},
        {"id": "n1", "membership": "Learner"},
        {"id": "n2", "membership": "None"},
    ]

    after = recorded_membership({"members": members}, group(replicas=7))

    assert (after.voters, after.learners) == (frozenset({"n0"}), frozenset({"n1"}))


def test_the_members_of_the_spec_are_the_voters_of_a_group_without_a_status() -> None:
    assert recorded_membership({}, group(replicas=5)) == membership(5)


def test_a_report_with_the_id_of_no_possible_member_is_ignored() -> None:
    forged = leader_status("n0", term=9, voters=FORGED)

    assert reported_membership([forged], PREVIOUS) == PREVIOUS
    earlier = leader_status("n1", term=7, voters=["n0", "n1"])
    assert reported_membership([forged, earlier], PREVIOUS) == membership(2)


def test_the_id_of_no_possible_member_is_ignored_in_the_status() -> None:
    members = [{"id": each, "membership": "Voter"} for each in [*FORGED, 7, None, ["n0"]]]

    assert recorded_membership({"members": members}, group()) == membership(2)


class Forger:
    """A member whose answers name a voter that no group can have."""

    async def status(self, ip: str) -> object:
        voters = FORGED if ip == "127.0.0.2" else ["n0"]
        return node_status(f"n{int(ip[-1]) - 1}", voters=voters)


async def test_an_answer_with_the_id_of_no_possible_member_counts_as_silence() -> None:
    answers = await observe.statuses(Forger(), [pod(0), pod(1)])  # type: ignore[arg-type]

    assert answers.keys() == {"uid-0"}


@given(voters=IDS, learners=IDS, roles=st.lists(st.sampled_from(["Voter", "Learner"]), min_size=12))
def test_no_report_and_no_status_asks_for_more_members_or_pods_than_a_group_may_have(
    voters: list[str], learners: list[str], roles: list[str]
) -> None:
    leading = leader_status("n0", term=9, voters=voters, learners=learners)
    members = [{"id": i, "membership": r} for i, r in zip(voters, roles, strict=False)]
    for found in (
        reported_membership([leading], PREVIOUS),
        recorded_membership({"members": members}, group()),
    ):
        judged = MemberJudge(group(), found).members(MemberReads([pod(0)]))
        assert 3 <= len(judged) <= names.REPLICAS_MAX
        world = ScalingWorld(leader=None, pods=3).state(found)
        assert _pods(next_step(world)) <= names.REPLICAS_MAX
    state = ScalingWorld(leader="n0", pods=3).state()
    answers = {
        **state.answers,
        "n0": replace(state.answers["n0"], voters=voters, learners=learners),
    }
    assert _pods(next_step(replace(state, answers=answers))) <= names.REPLICAS_MAX


def _pods(step: object) -> int:
    return step.replicas if isinstance(step, SetPods) else 0


@pytest.mark.parametrize("ordinal", range(names.REPLICAS_MAX))
def test_a_member_has_an_ordinal_that_a_group_may_have(ordinal: int) -> None:
    assert names.ordinal(f"n{ordinal}") == ordinal
    assert names.ordinal(f"n{ordinal + names.REPLICAS_MAX}") == names.ordinal(f"{ordinal}") == -1
