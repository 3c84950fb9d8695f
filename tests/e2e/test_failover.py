"""Failovers of many kinds: no acknowledged append is lost, and the master Service follows."""

import statistics

import pytest

from dledger_e2e.group import Group, claim_name
from dledger_e2e.load import Load, assert_nothing_was_lost
from dledger_e2e.pod_watch import PodWatch
from dledger_e2e.waiting import wait_for
from tools.deployment import OPERATOR_NAMESPACE

pytestmark = pytest.mark.cluster


def kill_leader(group: Group, load: Load) -> str:
    """Delete the leader's pod; return the next leader once it is the Service's only endpoint."""
    old = group.leader_pod()
    old_uid = group.pods()[old]["metadata"]["uid"]
    group.delete_pod(old)

    def moved() -> str | None:
        new = group.leader_pod()
        return new if group.pods()[new]["metadata"]["uid"] != old_uid else None

    new = wait_for(moved, "the master Service has a new leader as its only endpoint")
    load.wait_for_more(500)
    return new


def test_the_leaders_pod_is_deleted_again_and_again_under_load(
    group: Group, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    kills = request.config.getoption("--leader-kills")
    gaps_s = []
    with PodWatch(group) as watch, Load(group) as load:
        for _ in range(kills):
            load.wait_for_more(1_000)
            before = len(load.acknowledged) - 1
            kill_leader(group, load)
            gaps_s.append(load.longest_pause_s(since=before))
            wait_for(lambda: len(group.pods()) == 3, "three pods exist")
            group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady")

    with capsys.disabled():
        print(
            f"\n{kills} leader kills, {len(load.acknowledged)} appends acknowledged, "
            f"{load.unknown} unknown: write gaps median {statistics.median(gaps_s) * 1000:.0f} ms, "
            f"max {max(gaps_s) * 1000:.0f} ms; {watch.events} pod events seen"
        )
    assert_nothing_was_lost(group, load)
    assert len(watch.terms) >= kills, "the watch received too few pods"
    assert not watch.double_masters
    assert all(terms == sorted(terms) for terms in watch.terms.values()), "a pod's term decreased"
    assert not load.refused


def test_acknowledged_appends_survive_the_deletion_of_all_pods_at_once(group: Group) -> None:
    with Load(group) as load:
        load.wait_for_more(2_000)
        group.delete_pod(*group.pods())
        load.wait_for_more(500, timeout_s=120)

    group.leader_pod()
    assert_nothing_was_lost(group, load)


def test_a_new_operator_corrects_the_service_after_a_failover(group: Group) -> None:
    """The group elects a leader without any operator; new ones then update the labels."""
    operators = group.deployment.operator_pods()
    with PodWatch(group) as watch, Load(group) as load:
        load.wait_for_more(1_000)
        old = group.leader_pod()
        group.deployment.kubernetes.kubectl(
            "delete", "pod", *operators, f"--namespace={OPERATOR_NAMESPACE}",
            "--grace-period=0", "--force", "--wait=false",
        )  # fmt: skip
        kill_leader(group, load)

    assert group.master_endpoints() == [group.leader_pod()]
    assert watch.events
    assert not watch.double_masters
    assert_nothing_was_lost(group, load)
    wait_for(lambda: old in group.pods(), f"{old} is recreated")


def test_the_service_follows_when_the_leaders_node_is_lost_and_returns(group: Group) -> None:
    """A lost node closes no connections, so only timeouts reveal it."""
    local = group.deployment.local
    if local is None:
        pytest.skip("a node can be cut off only on the local cluster")
    client_node = str(group.get("pod", "client")["spec"]["nodeName"])
    with Load(group) as load:
        load.wait_for_more(1_000)
        old = group.leader_pod()
        if group.pods()[old]["spec"]["nodeName"] == client_node:
            old = kill_leader(group, load)  # the client must survive
        number = group.node_number_of(old)
        local.stop_node(number)
        try:
            wait_for(
                lambda: next((pod for pod in group.master_endpoints() if pod != old), None),
                "another pod is an endpoint of the master Service",
                timeout_s=60,
            )
            load.wait_for_more(500, timeout_s=120)
        finally:
            local.start_node(number)

    group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady", timeout_s=180)
    end = max(each.index for each in load.acknowledged)

    def caught_up() -> bool:
        status = group.node_status(old)
        return status is not None and status.committed_index >= end

    wait_for(caught_up, f"{old} has caught up", timeout_s=120)
    assert_nothing_was_lost(group, load)


def test_a_follower_with_an_empty_volume_rejoins_before_the_leader_is_killed(group: Group) -> None:
    """With an empty volume, it must not help to elect a member that lacks its old entries."""
    with Load(group) as load:
        load.wait_for_more(1_000)
        leader = group.leader_pod()
        lost = next(pod for pod in sorted(group.pods()) if pod != leader)
        old_claim_uid = group.claim_uid_of(lost)
        group.kubectl("delete", "pvc", claim_name(lost), "--wait=false")
        group.delete_pod(lost)

        def votes_again() -> bool:
            status = group.node_status(lost)
            is_new = group.claim_uid_of(lost) not in (None, old_claim_uid)
            return is_new and status is not None and status.ready and not status.joining

        wait_for(votes_again, f"{lost} votes and has a new volume claim", timeout_s=180)
        kill_leader(group, load)

    assert_nothing_was_lost(group, load)
