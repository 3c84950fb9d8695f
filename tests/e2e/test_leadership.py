"""Moving the leadership under load: on request, and off nodes that are drained."""

import pytest

from dledger_e2e.drains import drain
from dledger_e2e.group import Group, member_of
from dledger_e2e.load import Load, assert_nothing_was_lost
from dledger_e2e.one_off import carry_out
from dledger_e2e.waiting import wait_for

pytestmark = pytest.mark.cluster

SWITCHOVERS = 5
PAUSE_S_MAX = 5.0
"""Far above what is seen, because the machine may be busy with other tests."""


def assert_no_append_failed(load: Load) -> None:
    assert (load.refused, load.unknown) == (0, 0), load.failures


def test_the_leadership_moves_again_and_again_under_load(
    group: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    phases: list[tuple[object, ...]] = []
    with Load(group, per_second=500) as load:
        load.wait_for_more(500)
        since = len(load.acknowledged)
        for number in range(SWITCHOVERS):
            leader = group.leader_pod()
            target = next(pod for pod in sorted(group.pods()) if pod != leader)
            status = carry_out(
                group, "DLedgerSwitchover", f"move-{number}", target=member_of(target)
            )
            assert status["from"] == member_of(leader)
            assert group.master_endpoints() == [target], "the Service has followed"
            phases.append(tuple(status[f"{each}Seconds"] for each in ("transfer", "service")))
            load.wait_for_more(200)
        pause_s = load.longest_pause_s(since)

    with capsys.disabled():
        print(
            f"\n{SWITCHOVERS} switchovers: (transfer, Service) in s {phases}; gap {pause_s:.3f} s"
        )
    assert_no_append_failed(load)
    assert pause_s < PAUSE_S_MAX
    assert_nothing_was_lost(group, load)


def test_each_node_is_drained_in_turn_under_load_and_no_append_fails(
    group: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = {name: str(pod["spec"]["nodeName"]) for name, pod in group.pods().items()}
    with Load(group, per_second=500) as load:
        load.wait_for_more(500)
        since, cordoned_leader = len(load.acknowledged), group.leader_pod()
        for pod, node in sorted(nodes.items(), key=lambda each: each[0] != cordoned_leader):
            try:
                if pod == cordoned_leader:
                    group.kubectl("cordon", node)
                    wait_for(lambda: group.leader_pod() != cordoned_leader, "the leader leaves")
                    assert pod in group.pods(), "it handed over before its pod was evicted"
                drain(group, node)
            finally:
                group.kubectl("uncordon", node)
            load.wait_for_more(200)
            wait_for(lambda: len(group.pods()) == len(nodes), "every member has a pod")
            group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady")
        pause_s = load.longest_pause_s(since)

    with capsys.disabled():
        print(
            f"\n{len(nodes)} drains: the longest gap was {pause_s:.3f} s, "
            f"{len(load.acknowledged)} appends acknowledged"
        )
    assert_no_append_failed(load)
    assert pause_s < PAUSE_S_MAX
    assert_nothing_was_lost(group, load)
    events = [each for each in group.get("events")["items"] if each["reason"] == "LeadershipMoved"]
    assert any("which is being emptied: it is cordoned" in each["message"] for each in events)
    reasons = {each["reason"] for each in group.status()["leaderChanges"]}
    planned = {"FirstLeader", "LeadershipTransferred", "PodReplaced"}
    assert reasons <= planned, "no leader was lost: one that is evicted hands over, too"
