"""Moving the leadership under load: on request, and off nodes that are drained."""

from collections.abc import Callable

import pytest

from dledger_e2e.drains import drain
from dledger_e2e.failovers import Gaps
from dledger_e2e.group import Group, member_of
from dledger_e2e.load import Load, assert_nothing_was_lost, summary
from dledger_e2e.one_off import carry_out
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
    assert gaps.longest_s < PAUSE_S_MAX


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
                drain_node_of(group, pod, nodes_of(group)[pod], leads=pod == leader)
                load.wait_for_more(200)
                group.wait_until_whole()
                gaps_s.append(load.longest_pause_s(since))

    with capsys.disabled():
        print(f"\n{len(gaps_s)} drains: {summary(gaps_s)}, {len(load.acknowledged)} appends")
    assert_no_append_failed(load)
    assert max(gaps_s) < PAUSE_S_MAX
    assert_nothing_was_lost(group, load)
    events = [each for each in group.get("events")["items"] if each["reason"] == "LeadershipMoved"]
    assert any("which is being emptied: it is cordoned" in each["message"] for each in events)
    reasons = {each["reason"] for each in group.status()["leaderChanges"]}
    planned = {"FirstLeader", "LeadershipTransferred", "PodReplaced"}
    assert reasons <= planned, "no leader was lost: one that is evicted hands over, too"


def nodes_of(group: Group) -> dict[str, str]:
    """Return the node of each pod."""
    return {name: str(pod["spec"]["nodeName"]) for name, pod in group.pods().items()}


def drain_node_of(group: Group, pod: str, node: str, *, leads: bool) -> None:
    """Drain a node; one whose pod leads is cordoned first, until the leadership has moved."""
    try:
        if leads:
            group.kubectl("cordon", node)
            wait_for(lambda: group.leader_pod() != pod, "the leader leaves")
            assert pod in group.pods(), "it handed over before its pod was evicted"
        drain(group, node)
    finally:
        group.kubectl("uncordon", node)
