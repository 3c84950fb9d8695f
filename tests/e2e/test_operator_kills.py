"""The operator is killed after each of its steps, while it rolls and scales a group under load."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from dledger_e2e.failovers import delete_operators
from dledger_e2e.group import Group
from dledger_e2e.load import Load, assert_nothing_was_lost
from dledger_e2e.pod_watch import PodWatch
from dledger_e2e.waiting import wait_for

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.sampled(2, among="planned changes on the cluster"),
]

KILLS = 2
DONE_S = 240.0
STEPS = {
    "PodReplaced", "LeadershipMoved", "Scaled", "MemberAdded", "MemberPromoted", "MemberRemoved",
}  # fmt: skip
"""The Events of which each tells of one step."""
CHANGES: tuple[dict[str, Any], ...] = (
    {"log": {"flushDiskType": "AsyncFlush"}},
    {"replicas": 5},
    {"log": {"flushDiskType": "SyncFlush"}},
    {"replicas": 3},
)


def test_the_operator_goes_on_after_a_kill_at_any_step_of_a_roll_or_of_scaling(
    group: Group, rounds: Callable[[int], int], capsys: pytest.CaptureFixture[str]
) -> None:
    kills_left, changes = rounds(KILLS), itertools.cycle(CHANGES)
    done: list[dict[str, Any]] = []
    with PodWatch(group) as watch, Load(group, per_second=500) as load:
        load.wait_for_more(500)
        since = len(load.acknowledged)
        while kills_left:
            change = next(changes)
            group.change(**change)
            while kills_left and takes_a_step(group):
                kill_operator(group)
                kills_left -= 1
            wait_for(group.is_as_asked, f"{change} is done", DONE_S)
            done.append(change)
        load.wait_for_more(500)
        gap_s = load.longest_pause_s(since)

    with capsys.disabled():
        print(f"\n{rounds(KILLS)} kills during {len(done)} changes: gap {gap_s:.3f} s")
    assert (load.refused, load.unknown) == (0, 0), load.failures
    assert watch.fewest_up >= 2, "one member at a time"
    assert not watch.double_masters
    assert_nothing_was_lost(group, load)


def takes_a_step(group: Group) -> bool:
    """Wait until the operator has told of another step. Return False if nothing is left to do."""
    before = steps_told(group)

    def seen() -> str:
        if steps_told(group) > before:
            return "a step"
        return "nothing left" if group.is_as_asked() else ""

    return wait_for(seen, "the operator takes a step", DONE_S) == "a step"


def steps_told(group: Group) -> int:
    events = group.get("events")["items"]
    return sum(each.get("count", 1) for each in events if each["reason"] in STEPS)


def kill_operator(group: Group) -> None:
    """Kill the operator that acts, and wait until another one does."""
    deployment = group.deployment
    killed = deployment.operator_pod()
    delete_operators(group, killed)
    wait_for(lambda: deployment.operator_pod() != killed, f"another operator acts than {killed}")
