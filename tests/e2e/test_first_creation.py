"""First creations that fail, with the real controllers and kubelets: what users are told, and how
the group then begins.
"""

from collections.abc import Callable
from typing import Any

import pytest

from dledger_e2e.group import Group
from dledger_e2e.load import Load
from dledger_e2e.waiting import wait_for

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.sampled(1, among="volumes on the cluster"),
]

TOLD_S = 30.0
"""How soon a cause is told; the controller repeats a refused creation at growing intervals."""
BEGUN_S = 240.0
NO_PODS: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "team"},
    "spec": {"hard": {"count/pods": "0"}},
}


def claims(group: Group) -> dict[str, str]:
    """The uid of every volume claim, by name."""
    found = group.get("pvc")["items"]
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}


def appends(group: Group) -> None:
    group.start_client()
    with Load(group, per_second=100) as load:
        load.wait_for_more(100)


def test_a_corrected_spec_begins_a_group_whose_pods_fitted_no_node(
    make_group: Callable[..., Group],
) -> None:
    group = make_group(scheduling={"nodeSelector": {"no-such": "node"}})
    wait_for(lambda: len(group.pods()) == 3, "three pods wait for a node")
    waiting = group.wait_for_words("Ready", "node affinity/selector", TOLD_S)
    assert waiting["status"] == "False"
    before = set(group.uids().values())

    group.change(scheduling=None)

    group.wait_until_ready(BEGUN_S)
    wait_for(group.is_as_asked, "all members are ready", BEGUN_S)
    assert not before & set(group.uids().values())
    appends(group)


def test_a_group_that_is_made_again_begins_over_the_blank_volumes_that_were_retained(
    make_group: Callable[..., Group],
) -> None:
    group = make_group(image={"repository": "localhost/no-such-image", "tag": "1"})
    group.wait_for_words("Ready", "no-such-image", TOLD_S)
    wait_for(lambda: len(claims(group)) == 3, "three claims")
    before = claims(group)
    group.kubectl("delete", "dlg", group.name, "--timeout=60s")
    wait_for(lambda: not group.pods(), "the pods are gone", TOLD_S)
    group.deployment.kubernetes.apply(NO_PODS, f"--namespace={group.namespace}")
    wait_for(
        lambda: "hard" in group.get("resourcequota", "team").get("status", {}), "the quota counts"
    )

    group.create()
    refused = group.wait_for_words("Ready", "exceeded quota: team", TOLD_S)
    assert (refused["status"], refused["reason"]) == ("False", "FailedCreate")
    group.kubectl("delete", "resourcequota", "team")

    group.wait_until_ready(BEGUN_S)
    wait_for(group.is_as_asked, "all members are ready", BEGUN_S)
    assert claims(group) == before
    appends(group)


def test_a_corrected_spec_begins_a_group_with_fewer_members(
    make_group: Callable[..., Group],
) -> None:
    """It then grows over the volumes that its first founding has left."""
    group = make_group(replicas=5, image={"repository": "localhost/no-such-image", "tag": "1"})
    group.wait_for_words("Ready", "no-such-image", TOLD_S)
    wait_for(lambda: len(claims(group)) == 5, "five claims")
    before = claims(group)

    group.change(replicas=3, image=None)

    group.wait_until_ready(BEGUN_S)
    wait_for(group.is_as_asked, "all members are ready", BEGUN_S)
    assert group.get("dlg", group.name)["status"]["firstVoters"] == 3
    assert len(group.pods()) == 3
    assert claims(group) == before, "retained, as storage.retain says"
    appends(group)
    group.change(replicas=5)
    wait_for(group.is_as_asked, "the group has grown over the volumes that were left", BEGUN_S)
