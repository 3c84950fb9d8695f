"""Changing the image and a setting of a group under load, with kubectl."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from dledger_e2e.group import Group
from dledger_e2e.load import Load, assert_nothing_was_lost, assert_pauses_are_short, summary
from dledger_e2e.pod_watch import PodWatch
from dledger_e2e.rolls import ROLLED_S
from dledger_e2e.waiting import wait_for

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.sampled(2, among="planned changes on the cluster"),
]

PAUSE_S_MAX = 10.0


def test_an_image_and_a_setting_change_under_load_without_a_failed_append_or_a_loss(
    group: Group, rounds: Callable[[int], int], capsys: pytest.CaptureFixture[str]
) -> None:
    gaps_s: dict[str, list[float]] = {"image": [], "setting": []}
    images = name_image_twice(group)
    with PodWatch(group) as watch, Load(group, per_second=500) as load:
        load.wait_for_more(500)
        for number in range(rounds(1)):
            flush_disk_type = ("AsyncFlush", "SyncFlush")[number % 2]
            image = images[(number + 1) % 2]
            gaps_s["image"].append(roll(group, load, image={"tag": image.rsplit(":", 1)[1]}))
            assert {each["image"] for each in group.status()["members"]} == {image}
            gaps_s["setting"].append(roll(group, load, log={"flushDiskType": flush_disk_type}))
            assert group.status()["flushDiskType"] == flush_disk_type, "the members say so"

    with capsys.disabled():
        for what, found in gaps_s.items():
            print(f"\n{len(found)} rolls, {what}: {summary(found)}")
    assert (load.refused, load.unknown) == (0, 0), load.failures
    assert_pauses_are_short([*itertools.chain(*gaps_s.values())], PAUSE_S_MAX)
    assert watch.fewest_up >= 2, "one member at a time"
    assert not watch.double_masters
    assert_nothing_was_lost(group, load)


def name_image_twice(group: Group) -> tuple[str, str]:
    """Give the members' image another name; the two names are two images to everybody else."""
    image = group.deployment.image("node")
    local = group.deployment.local
    if local is None:
        pytest.skip("the nodes of this cluster cannot be given another name of an image")
    other = f"{image}-again"
    local.name_also(image, other)
    return image, other


def roll(group: Group, load: Load, **change: Any) -> float:
    """Change the spec, wait until every pod was replaced, and return the longest gap."""
    before, leader, since = group.uids(), group.leader_pod(), len(load.acknowledged)
    group.change(**change)
    wait_for(group.is_as_asked, "every pod runs what the spec asks for", ROLLED_S)
    load.wait_for_more(500)
    assert_every_pod_was_replaced(group, before, leader)
    return load.longest_pause_s(since)


def assert_every_pod_was_replaced(group: Group, before: dict[str, str], leader: str) -> None:
    after = group.uids()
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values()), "every pod is another one"
    events = [each for each in group.get("events")["items"] if each["reason"] == "PodReplaced"]
    in_order = sorted(events, key=lambda event: str(event["lastTimestamp"]))
    replaced = [each["message"].split()[2] for each in in_order][-len(before) :]
    assert sorted(replaced) == sorted(before)
    assert replaced[-1] == leader, "the leader last"
