"""Nodes are drained under load while more goes on: another drain, or a roll that has halted."""

import json
from typing import Any

import pytest

from dledger_e2e.drains import drained
from dledger_e2e.group import Group
from dledger_e2e.load import Load, assert_nothing_was_lost
from dledger_e2e.pod_watch import PodWatch
from dledger_e2e.waiting import wait_for

pytestmark = pytest.mark.cluster

ROUNDS = 2
PAUSE_S_MAX = 5.0
"""Far above what is seen, because the machine may be busy with other tests."""
ROLLED_S = 240.0


def node_of(group: Group, pod: str) -> str:
    return str(group.pods()[pod]["spec"].get("nodeName", ""))


def wait_until_whole(group: Group) -> None:
    wait_for(lambda: len(group.pods()) == 3, "every member has a pod")
    group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady")


def assert_served(group: Group, load: Load, watch: PodWatch, since: int) -> None:
    pause_s = load.longest_pause_s(since)
    print(f"gap {pause_s:.3f} s, at least {watch.fewest_up} members up")
    assert (load.refused, load.unknown) == (0, 0), load.failures
    assert watch.fewest_up == 2, "one member at a time, and so never below the quorum"
    assert not watch.double_masters
    assert pause_s < PAUSE_S_MAX
    assert_nothing_was_lost(group, load)


def test_two_nodes_are_drained_at_once_and_one_member_goes_at_a_time(
    group: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled(), PodWatch(group) as watch, Load(group, per_second=500) as load:
        load.wait_for_more(500)
        since = len(load.acknowledged)
        for _ in range(ROUNDS):
            leader = group.leader_pod()
            follower = max(pod for pod in group.pods() if pod != leader)
            nodes = {node_of(group, pod) for pod in (leader, follower)}
            assert len(nodes) == 2, "the members are spread"
            before = {pod: found["metadata"]["uid"] for pod, found in group.pods().items()}
            with drained(group, *nodes):
                load.wait_for_more(200)
            after = {pod: found["metadata"]["uid"] for pod, found in group.pods().items()}
            assert all(before[pod] != after.get(pod) for pod in (leader, follower))
            wait_until_whole(group)
            spread_again(group)
            load.wait_for_more(200)
        print(f"\n{ROUNDS} times two drains at once: ", end="")
    with capsys.disabled():
        assert_served(group, load, watch, since)


def spread_again(group: Group) -> None:
    """Let the scheduler place one pod on each node again, one at a time."""
    for pod in sorted(group.pods()):
        nodes = [node_of(group, each) for each in group.pods()]
        if len(set(nodes)) == len(nodes):
            return
        if nodes.count(node_of(group, pod)) > 1:
            group.kubectl("delete", "pod", pod)
            wait_until_whole(group)


def patch(group: Group, spec: dict[str, Any]) -> None:
    group.kubectl("patch", "dlg", group.name, "--type=merge", "-p", json.dumps({"spec": spec}))


def halted_pod(group: Group) -> str:
    """Wait until a roll has halted; return the pod whose image cannot be pulled."""
    group.wait_for_condition("Progressing", "True", "RollHalted")
    waiting = [
        pod
        for pod, found in group.pods().items()
        if not found["status"].get("containerStatuses", [{"ready": True}])[0]["ready"]
    ]
    assert len(waiting) == 1, waiting
    return waiting[0]


def test_a_halted_roll_outlasts_drains_and_goes_on_once_the_spec_is_right(
    group: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled(), PodWatch(group) as watch, Load(group, per_second=500) as load:
        load.wait_for_more(500)
        since = len(load.acknowledged)
        patch(group, {"image": {"tag": "missing"}})
        halted = halted_pod(group)
        before = group.pods()[halted]["metadata"]["uid"]
        with drained(group, node_of(group, halted)):
            pass
        wait_for(lambda: group.pods().get(halted, {}) != {}, "the pod is made again")
        assert halted_pod(group) == halted
        assert group.pods()[halted]["metadata"]["uid"] != before

        leader = group.leader_pod()
        cordoned = node_of(group, leader)
        try:
            group.kubectl("cordon", cordoned)
            wait_for(lambda: group.leader_pod() not in (leader, halted), "the leader moves")
        finally:
            group.kubectl("uncordon", cordoned)
        assert halted_pod(group) == halted
        load.wait_for_more(200)

        patch(group, {"image": {"tag": None}, "restartedAt": "2026-01-01T00:00:00Z"})
        wait_until_rolled_out(group)
        load.wait_for_more(200)
        print("\na halted roll and two drains: ", end="")
    with capsys.disabled():
        assert_served(group, load, watch, since)


def wait_until_rolled_out(group: Group) -> None:
    """Wait until every pod runs what the spec asks for."""

    def rolled_out() -> bool:
        found = group.get("dlg", group.name)
        status = found.get("status", {})
        current = status.get("observedGeneration") == found["metadata"]["generation"]
        settled = group.condition("Progressing").get("status") == "False"
        return current and "plan" not in status and settled

    wait_for(rolled_out, f"{group.name} runs what its spec asks for", ROLLED_S)
