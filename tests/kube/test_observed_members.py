"""Judging the members of a group by what was read."""

from dataclasses import replace

import pytest

from dledger_formats.http.status import NodeStatus, StorageState
from dledger_kube.objects import NOW, group, membership, node_status, pod
from dledger_operator.api_objects import CreationFailure, PodView, VolumeClaimView
from dledger_operator.behaviors.members.observed_members import MemberJudge, MemberReads
from dledger_operator.problem import Problem

JUDGE = MemberJudge(group(), membership())


def reason_of(first: PodView | None, answers: dict[str, NodeStatus]) -> str:
    pods = [pod(1), pod(2)] if first is None else [first, pod(1), pod(2)]
    return JUDGE.members(MemberReads(pods, answers=answers))[0].reason


def test_a_member_is_ready_if_it_answers_and_its_pod_is_ready() -> None:
    reads = MemberReads([pod(0, "slave")], answers={"uid-0": node_status("n0")})

    seen = JUDGE.members(reads)[0]

    assert (seen.ready, seen.reason, seen.role, seen.exists) == (True, "", "slave", True)


@pytest.mark.parametrize(
    ("first", "answer", "expected"),
    [
        (None, None, "the pod does not exist"),
        (pod(0, leaving=True), node_status(), "the pod is terminating"),
        (pod(0, ip=""), None, "the pod is starting"),
        (pod(0), None, "no answer on port 40912"),
        (pod(0), node_status(ready=False, reason="the volume is full"), "the volume is full"),
        (pod(0, ready=False), node_status(), "the pod's readiness probe does not succeed yet"),
        (pod(0, problem=Problem(reason="E", message="m")), None, "E: m"),
    ],
)
def test_a_member_that_is_not_ready_has_a_reason(
    first: PodView | None, answer: NodeStatus | None, expected: str
) -> None:
    assert reason_of(first, {"uid-0": answer} if answer else {}) == expected


def test_a_member_of_another_group_that_answers_is_named_and_its_pod_may_be_deleted() -> None:
    reads = MemberReads([pod(0)], strangers={"uid-0": "flights 1a2b"})

    reason = JUDGE.members(reads)[0].reason

    assert "member of another group answers: flights 1a2b" in reason
    assert "delete the pod" in reason


def test_a_missing_pod_has_the_latest_reason_why_it_was_not_created() -> None:
    failures = [CreationFailure(pod="flights-0", message=text) for text in ("new", "old")]

    first, second, _ = JUDGE.members(MemberReads([pod(1)], failures=failures))

    assert first.problem == Problem(reason="FailedCreate", message="new")
    assert second.problem is None


def test_every_member_of_the_spec_is_listed() -> None:
    seen = JUDGE.members(MemberReads([pod(1)]))

    assert [(each.member_id, each.pod, each.exists) for each in seen] == [
        ("n0", "flights-0", False), ("n1", "flights-1", True), ("n2", "flights-2", False),
    ]  # fmt: skip


def test_a_problem_of_the_volume_claim_takes_precedence_over_the_waiting_pods() -> None:
    waiting = pod(0, problem=Problem(reason="Unschedulable", message="unbound volumes"))
    volume = VolumeClaimView(
        name="data-flights-0",
        ordinal=0,
        first_voters=3,
        identity="",
        leaving=False,
        problem=Problem(reason="VolumePending", message="class x"),
    )

    problem = JUDGE.members(MemberReads([waiting], [volume]))[0].problem

    assert problem is not None
    assert problem.reason == "VolumePending"


def test_a_full_volume_that_may_not_grow_is_a_problem_of_its_member() -> None:
    auto = {"step": "5Gi", "maxSize": "20Gi"}
    grows = group(storage={"size": "10Gi", "autoGrow": auto})
    full = VolumeClaimView(
        name="data-flights-0", ordinal=0, first_voters=3, identity="", leaving=False, problem=None,
        requested="20Gi", capacity="20Gi",
    )  # fmt: skip
    answer = node_status(ready=False, reason="the volume is full", storage=StorageState.FULL)
    reads = MemberReads([pod(0)], [full], {"uid-0": answer})

    problem = MemberJudge(grows, membership(), now=NOW).members(reads)[0].problem
    paused = MemberJudge(replace(grows, paused=True), membership(), now=NOW).members(reads)[0]

    assert problem is not None
    assert problem.reason == "VolumeFull"
    assert paused.problem is None, "nothing grows, and Paused says so"


def test_a_groups_own_role_values_are_translated() -> None:
    renamed = group(roles={"label": "x/part", "master": "rw", "slave": "ro"})
    pods = [pod(0, labels={"x/part": "rw"}), pod(1, labels={"x/part": "ro"}), pod(2, "master")]

    seen = MemberJudge(renamed, membership()).members(MemberReads(pods))

    assert [each.role for each in seen] == ["master", "slave", "none"]


def test_pods_beyond_the_spec_are_listed_with_their_membership() -> None:
    judge = MemberJudge(group(replicas=3), membership(3, learners=("n3",)))

    seen = judge.members(MemberReads([pod(k) for k in range(5)]))

    assert [(each.member_id, each.membership.value) for each in seen] == [
        ("n0", "Voter"), ("n1", "Voter"), ("n2", "Voter"), ("n3", "Learner"), ("n4", "None"),
    ]  # fmt: skip


def test_a_voter_without_a_pod_is_listed_even_beyond_the_spec() -> None:
    judge = MemberJudge(group(replicas=3), membership(5))

    seen = judge.members(MemberReads([pod(k) for k in range(3)]))

    assert [(each.member_id, each.exists) for each in seen[3:]] == [("n3", False), ("n4", False)]
