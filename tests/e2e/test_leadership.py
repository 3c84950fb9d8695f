"""Moving the leadership under load: on request, and off nodes that are drained."""

from collections.abc import Callable

import pytest

from dledger_e2e.drains import drained
from dledger_e2e.failovers import Gaps
from dledger_e2e.group import Group, member_of
from dledger_e2e.load import Load, assert_nothing_was_lost, assert_pauses_are_short, summary
from dledger_e2e.one_off import carry_out
from dledger_e2e.pod_watch import PodWatch
from dledger_e2e.waiting import wait_for

pytestmark = pytest.mark.cluster

MEMBERS = 3
SWITCHOVERS = 5
PAUSE_S_MAX = 5.0
"""Far above what is seen, because the machine may be busy with other tests."""


def assert_no_append_failed(load: Load) -> None:
    assert (load.refused, load.unknown) == (0, 0), load.failures


@pytest.mark.sampled(2, among="planned changes on the cluster")
def test_the_leadership_moves_again_and_again_under_load(
    group: Group, rounds: Callable[[int], int], capsys: pytest.CaptureFixture[str]
) -> None:
    """One client follows the leader by itself; another one knows nothing but the Service.

    Their pauses while nothing moves tell what the busy machine alone costs.
    """
    gaps, calm = Gaps(), Gaps()
    with (
        Load(group, per_second=500) as following,
        Load(group, per_second=500, follow=False) as by_service,
    ):
        for number in range(rounds(SWITCHOVERS)):
            leader = group.leader_pod()
            target = next(pod for pod in sorted(group.pods()) if pod != leader)
            with calm.of(following=following, by_service=by_service):
                group.kubectl("get", "dledgerswitchovers")
            with gaps.of(following=following, by_service=by_service):
                status = carry_out(
                    group, "DLedgerSwitchover", f"move-{number}", target=member_of(target)
                )
            assert status["from"] == member_of(leader)
            assert group.master_endpoints() == [target], "the Service has followed"

    with capsys.disabled():
        print(f"\n{rounds(SWITCHOVERS)} switchovers; {gaps}")
        print(f"while nothing moved; {calm}")
    for load in (following, by_service):
        assert_no_append_failed(load)
        assert_nothing_was_lost(group, load)
    gaps.assert_short(PAUSE_S_MAX)


@pytest.mark.sampled(2, among="planned changes on the cluster")
def test_each_node_is_drained_in_turn_under_load_and_no_append_fails(
    group: Group, rounds: Callable[[int], int], capsys: pytest.CaptureFixture[str]
) -> None:
    gaps_s: list[float] = []
    with Load(group, per_second=500) as load:
        load.wait_for_more(500)
        for _ in range(rounds(1)):
            leader = group.leader_pod()
            for pod in sorted(group.pods(), key=lambda each: each != leader):
                since = len(load.acknowledged)
                drain_node_of(group, pod)
                load.wait_for_more(200)
                gaps_s.append(load.longest_pause_s(since))
        since = len(load.acknowledged)
        cordon_the_leaders_node(group)
        load.wait_for_more(200)
        gaps_s.append(load.longest_pause_s(since))

    with capsys.disabled():
        print(f"\n{len(gaps_s)} drains: {summary(gaps_s)}, {len(load.acknowledged)} appends")
    assert_no_append_failed(load)
    assert_pauses_are_short(gaps_s, PAUSE_S_MAX)
    assert_nothing_was_lost(group, load)


def drain_node_of(group: Group, pod: str) -> None:
    """Drain the node of a pod, and watch the pods until all members are back.

    A leader that is evicted hands over, so that no follower misses it first.
    """
    before, term, leads = group.uids(), term_of(group), group.leader_pod() == pod
    with PodWatch(group) as watch:
        with drained(group, node_of(group, pod)):
            pass
        wait_for(lambda: group.uids().get(pod, "") not in ("", before[pod]), f"{pod} is replaced")
        group.wait_until_whole()
    assert watch.fewest_up == MEMBERS - 1, "one member at a time, and so never below the quorum"
    assert not watch.double_masters
    if leads:
        wait_for(lambda: reasons_since(group, term), "the status tells that the leader has changed")
    assert reasons_since(group, term) <= {"LeadershipTransferred"}


def cordon_the_leaders_node(group: Group) -> None:
    """Cordon the node of the leader until it has left, which takes no eviction."""
    before, term, pod = group.uids(), term_of(group), group.leader_pod()
    node = node_of(group, pod)
    try:
        group.kubectl("cordon", node)
        wait_for(lambda: group.leader_pod() != pod, "the leader leaves")
        wait_for(
            lambda: reasons_since(group, term) == {"LeadershipTransferred"}, "the status tells it"
        )
        assert group.uids() == before, "no pod was replaced"
    finally:
        group.kubectl("uncordon", node)
    events = [each for each in group.get("events")["items"] if each["reason"] == "LeadershipMoved"]
    assert any("which is being emptied: it is cordoned" in each["message"] for each in events)


def term_of(group: Group) -> int:
    return int(group.status()["leader"]["term"])


def reasons_since(group: Group, term: int) -> set[str]:
    """Return the reasons of all changes of leaders after this term."""
    changes = group.status()["leaderChanges"]
    return {str(each["reason"]) for each in changes if each["term"] > term}


def node_of(group: Group, pod: str) -> str:
    return str(group.pods()[pod]["spec"]["nodeName"])
