"""A group with entries is put to sleep and woken, on the cluster."""

import time
from collections.abc import Callable

import pytest

from dledger_e2e.condition_watch import ConditionWatch
from dledger_e2e.group import Group
from dledger_e2e.load import Load, assert_nothing_was_lost
from dledger_e2e.waiting import wait_for

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.sampled(2, among="planned changes on the cluster"),
]

ROUNDS = 2


def test_a_group_sleeps_and_wakes_with_every_entry_and_volume(
    group: Group, rounds: Callable[[int], int], capsys: pytest.CaptureFixture[str]
) -> None:
    with Load(group, per_second=500) as load:
        load.wait_for_more(1_000)
    claims = {pod: group.claim_uid_of(pod) for pod in group.pods()}
    times_s = []
    for _ in range(rounds(ROUNDS)):
        began_s = time.monotonic()
        with ConditionWatch(group, "Progressing") as watch:
            group.change(hibernate=True)
            group.wait_for_condition("Ready", "False", "Hibernated")
            wait_for(lambda: watch.reasons[-1] == "Hibernated", "nothing is left to do")
        assert watch.reasons == ["AsRequested", "Hibernating", "Hibernated"]
        wait_for(lambda: not group.pods(), "no pod is left")
        assert {each["membership"] for each in group.status()["members"]} == {"Voter"}
        asleep_s = time.monotonic()
        group.change(hibernate=False)
        group.wait_for_condition("Ready", "True")
        group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady")
        times_s.append((asleep_s - began_s, time.monotonic() - asleep_s))

    with capsys.disabled():
        asleep, awake = (sorted(each) for each in zip(*times_s, strict=True))
        print(
            f"\n{len(times_s)} times asleep after {asleep[0]:.1f} to {asleep[-1]:.1f} s, awake "
            f"after {awake[0]:.1f} to {awake[-1]:.1f} s"
        )
    assert {pod: group.claim_uid_of(pod) for pod in group.pods()} == claims
    assert_nothing_was_lost(group, load)
    with Load(group, per_second=500) as later:
        later.wait_for_more(200)
    assert (later.refused, later.unknown) == (0, 0)
    assert min(each.index for each in later.acknowledged) > max(
        each.index for each in load.acknowledged
    ), "the log goes on where it was"
    reasons = {each["reason"] for each in group.get("events")["items"]}
    assert {"Hibernated", "Woken"} <= reasons
    assert "QuorumLost" not in reasons
