"""Failovers of many kinds: no acknowledged append is lost, and the master Service follows."""

import time
from collections.abc import Callable

import pytest

from dledger_e2e.failovers import (
    Gaps,
    acting_operator,
    delete_operators,
    kill_leader,
    operator_node_number,
    seconds_until_routed,
    wait_until_caught_up,
    wait_until_routed_elsewhere,
)
from dledger_e2e.group import Group, claim_name
from dledger_e2e.load import Load, assert_nothing_was_lost, summary
from dledger_e2e.pod_watch import PodWatch
from dledger_e2e.waiting import wait_for

pytestmark = pytest.mark.cluster


def test_the_leaders_pod_is_deleted_again_and_again_under_load(
    group: Group, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    """One client follows the leader by itself; another one knows nothing but the Service."""
    kills = request.config.getoption("--leader-kills")
    gaps = Gaps()
    routed_s = []
    with (
        PodWatch(group) as watch,
        Load(group, per_second=1_000) as following,
        Load(group, per_second=500, follow=False) as by_service,
    ):
        for _ in range(kills):
            with gaps.of(following=following, by_service=by_service):
                kill_leader(group, following)
            routed_s.append(seconds_until_routed(group))
            group.wait_until_whole()

    with capsys.disabled():
        print(f"\n{kills} leader kills; {gaps}; {watch.events} pod events seen")
        labels_s, endpoints_s = zip(*routed_s, strict=True)
        print(
            f"the proven leader's label: {summary(labels_s)}; its endpoints: "
            f"{summary(endpoints_s)}; both: {summary([sum(each) for each in routed_s])}"
        )
    for load in (following, by_service):
        assert_nothing_was_lost(group, load)
        assert not load.refused, load.failures
    assert len(watch.terms) >= kills, "the watch received too few pods"
    assert not watch.double_masters
    assert all(terms == sorted(terms) for terms in watch.terms.values()), "a pod's term decreased"


@pytest.mark.sampled(1, among="failovers on the cluster")
def test_acknowledged_appends_survive_the_deletion_of_all_pods_at_once(group: Group) -> None:
    with Load(group) as load:
        load.wait_for_more(2_000)
        group.delete_pod(*group.pods())
        load.wait_for_more(500, timeout_s=120)

    group.leader_pod()
    assert_nothing_was_lost(group, load)


@pytest.mark.sampled(1, among="failovers on the cluster")
def test_a_new_operator_corrects_the_service_after_a_failover(group: Group) -> None:
    """The group elects a leader without any operator; new ones then update the labels."""
    operators = group.deployment.operator_pods()
    with PodWatch(group) as watch, Load(group) as load:
        load.wait_for_more(1_000)
        old = group.leader_pod()
        delete_operators(group, *operators)
        kill_leader(group, load)

    assert group.master_endpoints() == [group.leader_pod()]
    assert watch.events
    assert not watch.double_masters
    assert_nothing_was_lost(group, load)
    wait_for(lambda: old in group.pods(), f"{old} is recreated")


@pytest.mark.sampled(1, among="failovers on the cluster")
def test_the_second_operator_moves_the_service_when_the_first_dies_with_the_leader(
    group: Group, rounds: Callable[[int], int], capsys: pytest.CaptureFixture[str]
) -> None:
    gaps, moved_s = Gaps(), []
    with PodWatch(group) as watch, Load(group) as load:
        for _ in range(rounds(1)):
            operator = acting_operator(group)
            with gaps.of(following=load):
                old = group.leader_pod()
                old_uid = group.uids()[old]
                delete_operators(group, operator)
                began_s = time.monotonic()
                group.delete_pod(old)
                wait_until_routed_elsewhere(group, old_uid)
                moved_s.append(time.monotonic() - began_s)
            group.wait_until_whole()

    with capsys.disabled():
        print(f"\n{len(moved_s)} kills of operator and leader; {gaps}")
        print(f"from the kill to the moved Service: {summary(moved_s)}")
    assert not watch.double_masters
    assert_nothing_was_lost(group, load)


@pytest.mark.sampled(1, among="failovers on the cluster")
def test_the_service_follows_when_the_leaders_node_is_lost_and_returns(
    group: Group, rounds: Callable[[int], int], capsys: pytest.CaptureFixture[str]
) -> None:
    """A lost node closes no connections, so only timeouts reveal it."""
    local = group.deployment.local
    if local is None:
        pytest.skip("a node can be cut off only on the local cluster")
    client_node = str(group.get("pod", "client")["spec"]["nodeName"])
    gaps, with_operator, moved_s = Gaps(), Gaps(), []
    with PodWatch(group) as watch, Load(group) as load:
        for _ in range(rounds(1)):
            load.wait_for_more(1_000)
            old = group.leader_pod()
            if group.pods()[old]["spec"]["nodeName"] == client_node:
                old = kill_leader(group, load)  # the client must survive
                group.wait_until_whole()
            number = group.node_number_of(old)
            old_uid, took_operator = group.uids()[old], operator_node_number(group) == number
            with (with_operator if took_operator else gaps).of(following=load):
                began_s = time.monotonic()
                local.stop_node(number)
                try:
                    wait_until_routed_elsewhere(group, old_uid)
                    moved_s.append(time.monotonic() - began_s)
                    load.wait_for_more(500, timeout_s=120)
                finally:
                    local.start_node(number)
            group.wait_until_whole(timeout_s=180)
            wait_until_caught_up(group, old, max(each.index for each in load.acknowledged))

    with capsys.disabled():
        print(f"\nthe leader's node lost; {gaps}; with the acting operator on it; {with_operator}")
        print(f"from the loss to the moved Service: {summary(moved_s)}")
    assert not watch.double_masters
    assert_nothing_was_lost(group, load)


@pytest.mark.sampled(1, among="failovers on the cluster")
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
