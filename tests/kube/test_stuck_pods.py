"""What the operator says about a pod that should have ended long ago."""

from datetime import timedelta
from typing import Any

import pytest

from dledger_kube.objects import IMAGES, NOW, group, group_body, membership, pod
from dledger_operator.api_objects import PodView
from dledger_operator.behaviors.group_snapshot import GroupSnapshot
from dledger_operator.behaviors.handover.nodes import Nodes
from dledger_operator.behaviors.leader.role_labeler import FollowResult
from dledger_operator.behaviors.members.observed_members import MemberJudge, MemberReads

DELETE_NODE = "delete its Node, or give it the taint"
FOREIGN = ("example.com/protect",)


def nodes(status: str | None) -> Nodes:
    """The Nodes, among which worker-2 has this status of `Ready`; None if it is not known."""
    known = Nodes()
    if status is not None:
        conditions = [{"type": "MemoryPressure", "status": "False"}]
        conditions.append({"type": "Ready", "status": status})
        known.changed({"metadata": {"name": "worker-2"}, "status": {"conditions": conditions}})
    return known


def late_pod(**fields: Any) -> PodView:
    """Return a pod whose end is 40 s late."""
    ends_by = NOW - timedelta(seconds=40)
    return pod(2, leaving=True, ready=False, node="worker-2", ends_by=ends_by, **fields)


def said(node: Nodes, **fields: Any) -> str:
    """What the operator says about a pod whose end is 40 s late."""
    late = late_pod(**fields)
    judge = MemberJudge(group(replicas=3), membership(3), now=NOW, node_ready=node.is_ready)
    problem = judge.members(MemberReads([late]))[2].problem
    assert problem is not None
    assert problem.reason == "PodTerminating"
    assert "pod flights-2 on node worker-2 should have ended by" in problem.message
    return problem.message


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_pod_on_a_node_that_is_not_ready_goes_with_its_node(status: str) -> None:
    assert DELETE_NODE in said(nodes(status))


@pytest.mark.parametrize("status", ["True", "False", "Unknown", None])
def test_a_finalizer_that_keeps_an_ended_pod_is_named_and_the_node_left_alone(
    status: str | None,
) -> None:
    message = said(nodes(status), ended=True, finalizers=FOREIGN)

    assert "the finalizer example.com/protect keeps it" in message
    assert DELETE_NODE not in message


def test_a_ready_node_is_left_alone_and_its_kubelet_asked_instead() -> None:
    message = said(nodes("True"))

    assert "The node worker-2 is Ready, but its kubelet does not confirm" in message
    assert DELETE_NODE not in message


def test_a_pod_that_runs_on_a_ready_node_is_said_to_have_a_finalizer_too() -> None:
    message = said(nodes("True"), finalizers=FOREIGN)

    assert "its kubelet does not confirm" in message
    assert "the finalizer example.com/protect" in message
    assert DELETE_NODE not in message


def test_where_nodes_may_not_be_read_the_user_is_to_look_at_the_node_first() -> None:
    message = said(nodes(None))

    assert "If the node is Ready, leave it alone" in message
    assert message.index("leave it alone") < message.index(DELETE_NODE)


def test_a_groups_report_looks_at_the_nodes_that_the_operator_knows() -> None:
    snapshot = GroupSnapshot.of(group_body(), IMAGES)
    snapshot.followed = FollowResult(pods=[late_pod()])

    problem = snapshot.observe(NOW, None, None, nodes("True")).members[2].problem

    assert problem is not None
    assert "The node worker-2 is Ready" in problem.message
