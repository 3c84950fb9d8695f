"""Changing a setting of a group under load, with kubectl."""

from collections.abc import Callable

import pytest

from dledger_e2e.group import Group
from dledger_e2e.load import Load, assert_nothing_was_lost, summary
from dledger_e2e.waiting import wait_for

pytestmark = pytest.mark.cluster

ROLLED_S = 240.0
PAUSE_S_MAX = 10.0


def uids(group: Group) -> dict[str, str]:
    """The uid of every pod, by name."""
    return {name: str(pod["metadata"]["uid"]) for name, pod in group.pods().items()}


def test_a_setting_changes_under_load_without_a_failed_append_or_a_loss(
    group: Group, rounds: Callable[[int], int], capsys: pytest.CaptureFixture[str]
) -> None:
    gaps_s: list[float] = []
    with Load(group, per_second=500) as load:
        load.wait_for_more(500)
        for number in range(rounds(1)):
            before, leader, since = uids(group), group.leader_pod(), len(load.acknowledged)
            flush_disk_type = ("AsyncFlush", "SyncFlush")[number % 2]
            group.change(log={"flushDiskType": flush_disk_type})
            wait_for(group.is_as_asked, "every pod runs what the spec asks for", ROLLED_S)
            load.wait_for_more(500)
            gaps_s.append(load.longest_pause_s(since))
            assert_every_pod_was_replaced(group, before, leader)
            assert group.status()["flushDiskType"] == flush_disk_type, "the members say so"

    with capsys.disabled():
        print(f"\n{len(gaps_s)} rolls: {summary(gaps_s)}")
    assert (load.refused, load.unknown) == (0, 0), load.failures
    assert max(gaps_s) < PAUSE_S_MAX
    assert_nothing_was_lost(group, load)


def assert_every_pod_was_replaced(group: Group, before: dict[str, str], leader: str) -> None:
    after = uids(group)
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values()), "every pod is another one"
    events = [each for each in group.get("events")["items"] if each["reason"] == "PodReplaced"]
    in_order = sorted(events, key=lambda event: str(event["lastTimestamp"]))
    replaced = [each["message"].split()[2] for each in in_order][-len(before) :]
    assert sorted(replaced) == sorted(before)
    assert replaced[-1] == leader, "the leader last"
