"""Which nodes are being emptied, as far as a pod is concerned."""

from typing import Any

import pytest

from dledger_kube.objects import pod
from dledger_operator.api_objects import Toleration
from dledger_operator.behaviors.handover.nodes import Nodes, node_view

ANY_TIME = Toleration(key="node.kubernetes.io/not-ready", operator="Exists", ends=True)


def node(cordoned: bool = False, *taints: tuple[str, str, str], **labels: str) -> dict[str, Any]:
    listed = [{"key": key, "value": value, "effect": effect} for key, value, effect in taints]
    spec = {"unschedulable": True} if cordoned else {}
    return {
        "metadata": {"name": "worker-1", "labels": labels},
        "spec": spec | ({"taints": listed} if listed else {}),
    }


def having(condition: str, status: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": condition, "status": status}]}}


def why(body: dict[str, Any], *tolerations: Toleration) -> str:
    return node_view(body).why_emptied(pod(0, tolerations=tolerations))


def test_a_cordoned_node_is_being_emptied_whatever_a_pod_tolerates() -> None:
    assert why(node(cordoned=True), Toleration(operator="Exists")) == "it is cordoned"


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_taint_that_the_pod_does_not_tolerate_came_later(effect: str) -> None:
    tainted = node(False, ("ToBeDeleted", "", effect))

    assert why(tainted) == f"it has the taint ToBeDeleted:{effect}"


@pytest.mark.parametrize(
    "toleration",
    [
        Toleration(operator="Exists"),
        Toleration(key="team", operator="Exists"),
        Toleration(key="team", operator="Equal", value="a"),
        Toleration(key="team", value="a", effect="NoSchedule"),
    ],
)
def test_a_taint_that_the_pod_tolerates_is_its_nodes_own(toleration: Toleration) -> None:
    assert why(node(False, ("team", "a", "NoSchedule")), toleration) == ""


@pytest.mark.parametrize(
    "toleration",
    [
        Toleration(key="other", operator="Exists"),
        Toleration(key="team", operator="Equal", value="b"),
        Toleration(key="team", operator="Exists", effect="NoExecute"),
        Toleration(key="team", operator="Exists", ends=True),
    ],
)
def test_another_toleration_and_one_that_ends_do_not_count(toleration: Toleration) -> None:
    assert why(node(False, ("team", "a", "NoSchedule")), toleration) != ""


@pytest.mark.parametrize(
    "taint",
    [
        ("node.kubernetes.io/not-ready", "", "NoExecute"),
        ("node.kubernetes.io/memory-pressure", "", "NoSchedule"),
        ("spot", "", "PreferNoSchedule"),
    ],
)
def test_a_condition_that_comes_and_goes_empties_no_node(taint: tuple[str, str, str]) -> None:
    assert why(node(False, taint), ANY_TIME) == ""


def test_a_node_that_a_person_took_out_of_service_is_being_emptied() -> None:
    taint = ("node.kubernetes.io/out-of-service", "", "NoExecute")

    assert why(node(False, taint)) == "it has the taint node.kubernetes.io/out-of-service:NoExecute"


def test_only_what_matters_is_news() -> None:
    nodes = Nodes()

    assert nodes.changed(node(zone="a"))
    assert not nodes.changed(node(zone="a") | having("MemoryPressure", "True"))
    assert nodes.changed(node(True, zone="a"))
    assert nodes.deleted(node())
    assert not nodes.deleted(node())
    assert nodes.get("worker-1") is None


@pytest.mark.parametrize(
    ("condition", "status", "ready"),
    [
        ("Ready", "True", True),
        ("Ready", "False", False),
        ("Ready", "Unknown", False),
        ("DiskPressure", "True", False),
    ],
)
def test_a_node_is_ready_if_its_kubelet_says_so(condition: str, status: str, ready: bool) -> None:
    nodes = Nodes()

    assert nodes.is_ready("worker-1") is None
    nodes.changed(node() | having(condition, status))
    assert nodes.is_ready("worker-1") is ready
