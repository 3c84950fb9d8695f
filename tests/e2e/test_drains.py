"""Nodes are drained under load while more goes on: another drain, or a roll that has halted."""

from collections.abc import Callable

import pytest

from dledger_e2e.drains import drained
from dledger_e2e.group import Group
from dledger_e2e.load import Load, assert_nothing_was_lost, assert_pauses_are_short, summary
from dledger_e2e.pod_watch import PodWatch
from dledger_e2e.rolls import ROLLED_S, halted_pod
from dledger_e2e.waiting import wait_for

pytestmark = pytest.mark.cluster

ROUNDS = 1
PAUSE_S_MAX = 5.0
"""Far above what is seen, because the machine may be busy with other tests."""


def node_of(group: Group, pod: str) -> str:
    return str(group.pods()[pod]["spec"].get("nodeName", ""))


def wait_until_whole(group: Group) -> None:
    wait_for(lambda: len(group.pods()) == 3, "every member has a pod")
    group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady")


def assert_served(group: Group, load: Load, watch: PodWatch, gaps_s: list[float]) -> None:
    assert (load.refused, load.unknown) == (0, 0), load.failures
    assert watch.fewest_up == 2, "one member at a time, and so never below the quorum"
    assert not watch.double_masters
    assert_pauses_are_short(gaps_s, PAUSE_S_MAX)
    assert_nothing_was_lost(group, load)


@pytest.mark.sampled(2, among="planned changes on the cluster")
def test_two_nodes_are_drained_at_once_and_one_member_goes_at_a_time(
    group: Group, rounds: Callable[[int], int], capsys: pytest.CaptureFixture[str]
) -> None:
    gaps_s: list[float] = []
    with PodWatch(group) as watch, Load(group, per_second=500) as load:
        load.wait_for_more(500)
        for _ in range(rounds(ROUNDS)):
            since = len(load.acknowledged)
            leader = group.leader_pod()
            follower = max(pod for pod in group.pods() if pod != leader)
            nodes = {node_of(group, pod) for pod in (leader, follower)}
            assert len(nodes) == 2, "the members are spread"
            before = group.uids()
            with drained(group, *nodes):
                load.wait_for_more(200)
            after = group.uids()
            assert all(before[pod] != after.get(pod) for pod in (leader, follower))
            wait_until_whole(group)
            load.wait_for_more(200)
            gaps_s.append(load.longest_pause_s(since))
            spread_again(group)

    with capsys.disabled():
        print(f"\n{len(gaps_s)} times two drains at once: {summary(gaps_s)}")
    assert_served(group, load, watch, gaps_s)


def spread_again(group: Group) -> None:
    """Let the scheduler place one pod on each node again, one at a time."""
    for pod in sorted(group.pods()):
        nodes = [node_of(group, each) for each in group.pods()]
        if len(set(nodes)) == len(nodes):
            return
        if nodes.count(node_of(group, pod)) > 1:
            group.kubectl("delete", "pod", pod)
            wait_until_whole(group)


@pytest.mark.sampled(2, among="planned changes on the cluster")
def test_a_halted_roll_outlasts_drains_and_goes_on_once_the_spec_is_right(
    group: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    with PodWatch(group) as watch, Load(group, per_second=500) as load:
        load.wait_for_more(500)
        since = len(load.acknowledged)
        group.change(image={"tag": "missing"})
        halted = halted_pod(group)
        before = group.uids()[halted]
        with drained(group, node_of(group, halted)):
            pass
        wait_for(lambda: group.pods().get(halted, {}) != {}, "the pod is made again")
        assert halted_pod(group) == halted
        assert group.uids()[halted] != before

        leader = group.leader_pod()
        cordoned = node_of(group, leader)
        try:
            group.kubectl("cordon", cordoned)
            wait_for(lambda: group.leader_pod() not in (leader, halted), "the leader moves")
        finally:
            group.kubectl("uncordon", cordoned)
        assert halted_pod(group) == halted
        load.wait_for_more(200)

        group.change(image={"tag": None}, restartedAt="2026-01-01T00:00:00Z")
        wait_for(group.is_as_asked, "every pod runs what the spec asks for", ROLLED_S)
        load.wait_for_more(200)
        gap_s = load.longest_pause_s(since)

    with capsys.disabled():
        print(f"\na halted roll and two drains: {summary([gap_s])}")
    assert_served(group, load, watch, [gap_s])
