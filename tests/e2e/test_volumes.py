"""Volumes of a group whose spec asks to delete them: only what the spec says deletes them."""

from collections.abc import Callable

import pytest

from dledger_e2e.group import Group
from dledger_e2e.load import Load, assert_nothing_was_lost
from dledger_e2e.waiting import wait_for

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.sampled(1, among="volumes on the cluster"),
]

RESTORED_S = 180.0


def claims(group: Group) -> dict[str, str]:
    """The uid of every volume claim, by name."""
    found = group.get("pvc")["items"]
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}


def test_a_stateful_set_that_is_deleted_or_scaled_by_hand_loses_no_volume(
    make_group: Callable[..., Group],
) -> None:
    delete = {"whenDeleted": "Delete", "whenScaled": "Delete"}
    group = make_group(storage={"size": "1Gi", "retain": delete})
    group.start_client()
    group.wait_until_ready()
    group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady")
    before = claims(group)

    with Load(group, per_second=500) as load:
        load.wait_for_more(500)
        group.kubectl("delete", "statefulset", group.name, "--wait=false")
        wait_for(lambda: group.condition("Ready").get("status") != "True", "it is interrupted")
        load.wait_for_more(500, timeout_s=RESTORED_S)
        group.kubectl("scale", f"statefulset/{group.name}", "--replicas=1")
        wait_for(lambda: len(group.pods()) == 3, "the pods are made again", RESTORED_S)
        load.wait_for_more(500, timeout_s=RESTORED_S)

    group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady", RESTORED_S)
    assert claims(group) == before
    assert_nothing_was_lost(group, load)

    group.kubectl("scale", f"dlg/{group.name}", "--replicas=1")
    wait_for(
        lambda: claims(group).items() == {("data-log-0", before["data-log-0"])},
        "the claims of the removed members are deleted",
        RESTORED_S,
    )
    group.kubectl("delete", "dlg", group.name, "--timeout=60s")
    wait_for(lambda: not claims(group), "the claims are deleted with the group", RESTORED_S)
