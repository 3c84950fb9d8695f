"""What is known of members."""

import pytest

from dledger_formats.http.status import NodeStatus
from dledger_kube.fake_members import members
from dledger_kube.objects import electorate, group, node_status, pod
from dledger_operator.behaviours.members import observe
from dledger_operator.views import PodView, Trouble, VolumeView

GROUP = group()
VOTERS = electorate()


def reason_of(first: PodView | None, answers: dict[str, NodeStatus]) -> str:
    pods = [pod(1), pod(2)] if first is None else [first, pod(1), pod(2)]
    return observe.members(GROUP, pods, [], answers, VOTERS)[0].reason


def test_a_member_that_answers_and_is_ready_is_ready() -> None:
    seen = observe.members(GROUP, [pod(0, "slave")], [], {"uid-0": node_status("n0")}, VOTERS)[0]

    assert (seen.ready, seen.reason, seen.role, seen.exists) == (True, "", "slave", True)


@pytest.mark.parametrize(
    ("first", "answer", "expected"),
    [
        (None, None, "there is no pod"),
        (pod(0, leaving=True), node_status(), "the pod is leaving"),
        (pod(0, ip=""), None, "the pod is starting"),
        (pod(0), None, "no answer on port 40912"),
        (pod(0), node_status(ready=False, reason="the volume is full"), "the volume is full"),
        (pod(0, ready=False), node_status(), "the kubelet does not find the pod ready yet"),
        (pod(0, trouble=Trouble(reason="E", message="m")), None, "E: m"),
    ],
)
def test_a_member_that_is_not_ready_says_why(
    first: PodView | None, answer: NodeStatus | None, expected: str
) -> None:
    assert reason_of(first, {"uid-0": answer} if answer else {}) == expected


def test_every_member_that_there_should_be_is_told_of() -> None:
    seen = observe.members(GROUP, [pod(1)], [], {}, VOTERS)

    assert [(each.member_id, each.pod, each.exists) for each in seen] == [
        ("n0", "flights-0", False), ("n1", "flights-1", True), ("n2", "flights-2", False),
    ]  # fmt: skip


def test_a_volume_s_trouble_tells_more_than_the_pod_that_waits_for_it() -> None:
    waiting = pod(0, trouble=Trouble(reason="Unschedulable", message="unbound volumes"))
    volume = VolumeView(
        name="data-flights-0",
        ordinal=0,
        first_voters=3,
        leaving=False,
        trouble=Trouble(reason="VolumePending", message="class x"),
    )

    trouble = observe.members(GROUP, [waiting], [volume], {}, VOTERS)[0].trouble

    assert trouble is not None
    assert trouble.reason == "VolumePending"


def test_the_group_s_own_words_for_roles_become_ours() -> None:
    renamed = group(roles={"label": "x/part", "master": "rw", "slave": "ro"})
    pods = [pod(0, labels={"x/part": "rw"}), pod(1, labels={"x/part": "ro"}), pod(2, "master")]

    assert [each.role for each in observe.members(renamed, pods, [], {}, VOTERS)] == [
        "master", "slave", "none",
    ]  # fmt: skip


def test_pods_that_the_spec_does_not_ask_for_are_told_of_with_what_they_are() -> None:
    growing = electorate(3, learners=("n3",))

    seen = observe.members(group(replicas=3), [pod(k) for k in range(5)], [], {}, growing)

    assert [(each.member_id, each.membership.value) for each in seen] == [
        ("n0", "Voter"), ("n1", "Voter"), ("n2", "Voter"), ("n3", "Learner"), ("n4", "None"),
    ]  # fmt: skip


def test_a_voter_without_a_pod_is_told_of_though_the_spec_asks_for_fewer() -> None:
    seen = observe.members(group(replicas=3), [pod(k) for k in range(3)], [], {}, electorate(5))

    assert [(each.member_id, each.exists) for each in seen[3:]] == [("n3", False), ("n4", False)]


async def test_a_silent_member_does_not_hide_the_others() -> None:
    async with members(3) as (nodes, pages):
        await nodes[1].fall_silent()
        pods = [pod(ordinal, ip=node.ip) for ordinal, node in enumerate(nodes)]

        answers = await observe.statuses(pages, [*pods, pod(3, ip="")])

        assert sorted(answers) == ["uid-0", "uid-2"]
        assert answers["uid-2"].self_id == "n2"
