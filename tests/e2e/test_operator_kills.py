"""The operator is killed after each of its steps: while it rolls and scales a group under load,
while it replaces a lost member, and while a group goes to sleep and wakes.
"""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from dledger_e2e.failovers import delete_operators
from dledger_e2e.group import Group, member_of
from dledger_e2e.load import Load, assert_nothing_was_lost
from dledger_e2e.one_off import ENDED, order, status_of, strand
from dledger_e2e.pod_watch import PodWatch
from dledger_e2e.waiting import wait_for

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.sampled(2, among="planned changes on the cluster"),
]

KILLS = 2
KILLS_IN_ONE_REPLACEMENT_MAX = 6
TOLD_IN_ONE_REPLACEMENT_MAX = 40
"""A replacement has four steps, each with a few reasons, which a new operator tells again."""
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


def test_the_operator_goes_on_after_a_kill_in_any_phase_of_a_replacement_and_of_hibernation(
    group: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = min(set(group.pods()) - {group.leader_pod()})
    before = {pod: group.claim_uid_of(pod) for pod in group.pods()}
    with PodWatch(group) as watch, Load(group, per_second=500) as load:
        load.wait_for_more(500)
        strand(group, lost)
        told = replace_and_kill(group, lost)
        group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady", DONE_S)
        load.wait_for_more(200)
    after = {pod: group.claim_uid_of(pod) for pod in group.pods()}

    assert told[-1] == "Succeeded Replaced"
    assert {pod for pod, uid in before.items() if after[pod] != uid} == {lost}
    assert (load.refused, load.unknown) == (0, 0), load.failures
    assert not watch.double_masters

    group.change(hibernate=True)
    kill_operator(group)
    group.wait_for_condition("Ready", "False", "Hibernated", DONE_S)
    wait_for(lambda: not group.pods(), "no pod is left")
    group.change(hibernate=False)
    kill_operator(group)
    group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady", DONE_S)

    with capsys.disabled():
        print(f"\nthe operator was killed at each of these, six at most: {', '.join(told)}")
    assert {pod: group.claim_uid_of(pod) for pod in group.pods()} == after
    assert_nothing_was_lost(group, load)


def replace_and_kill(group: Group, pod: str) -> list[str]:
    """Replace a member, and kill the operator whenever the status tells of something new.

    Return what the status has told: phases, each with its reason.
    """
    order(group, "DLedgerReplace", "lost", member=member_of(pod))
    told: list[str] = []

    def is_new() -> str | None:
        status = status_of(group, "DLedgerReplace", "lost")
        now = " ".join((status["phase"], status["conditions"][0]["reason"])) if status else ""
        return now if now not in ("", *told[-1:]) else None

    while not (told and told[-1].startswith(ENDED)):
        assert len(told) < TOLD_IN_ONE_REPLACEMENT_MAX, f"the replacement does not end: {told}"
        told.append(wait_for(is_new, f"the replacement goes on after {told}", DONE_S))
        if not told[-1].startswith(ENDED) and len(told) <= KILLS_IN_ONE_REPLACEMENT_MAX:
            kill_operator(group)
    return told


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
