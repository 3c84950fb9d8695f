"""How often the status of an object that is carried out once is written while it waits."""

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from dledger_kube.one_off_world import Object, OneOffWorld
from dledger_kube.replace_world import ReplaceWorld, replace_body
from dledger_kube.switchover_world import SwitchoverWorld, switchover_body
from dledger_operator.behaviors.report.number_changes import differ_in_numbers_only


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, str]]:
    """The time and the reason of every status that is written from now on."""
    written: list[tuple[float, str]] = []
    store = OneOffWorld.apply_status

    async def apply_status(
        world: OneOffWorld, kind: str, body: Mapping[str, Any], status: Object
    ) -> None:
        written.append((world.now_s, status["conditions"][0]["reason"]))
        await store(world, kind, body, status)

    monkeypatch.setattr(OneOffWorld, "apply_status", apply_status)
    return written


async def test_a_switchover_whose_target_catches_up_is_not_written_ten_times_a_second(
    writes: list[tuple[float, str]],
) -> None:
    world = SwitchoverWorld(refuses_next=1)
    world.objects["move-uid"] = switchover_body(timeout="30s")
    worker = world.worker("move-uid")
    while not world.transfers:
        await worker._run_once()

    while not world.ended("move-uid"):
        world.lags["n2"] = 9000 - round(world.now_s * 100)
        await worker._run_once()
        world.pass_time(0.1)

    assert [reason for _, reason in writes].count("MemberLags") == 1
    assert "lacks 6" in world.status("move-uid")["conditions"][0]["message"], "the end is exact"


async def test_a_member_that_takes_the_log_again_is_written_once_a_minute(
    writes: list[tuple[float, str]],
) -> None:
    world = ReplaceWorld()
    world.members["n2"].lose()
    world.objects["renew-uid"] = replace_body(timeout="1h")
    worker = world.worker("renew-uid")

    while world.now_s < 300:
        lacks = 4999 - round(world.now_s * 10)
        world.members["n2"].lags = lacks if world.members["n2"].whole else 0
        await worker._run_once()
        world.pass_time(1.0)

    lagging = [at_s for at_s, reason in writes if reason == "MemberLags"]
    assert len(lagging) == 5
    assert all(later - sooner >= 60 for sooner, later in itertools.pairwise(lagging))


@pytest.mark.parametrize(
    ("before", "after", "numbers_only"),
    [
        ("n2 lacks 7 entries", "n2 lacks 12 entries", True),
        ("n2 healed 9.5% in 30s", "n2 healed 10% in 40s", True),
        ("n1 does not answer", "n2 does not answer", False),
        ("flights-1 is terminating", "flights-2 is terminating", False),
        ("n2 lacks 7 entries", "n2 does not answer", False),
    ],
)
def test_a_name_with_a_number_is_no_number(before: str, after: str, numbers_only: bool) -> None:
    one, other = ({"conditions": [{"message": message}]} for message in (before, after))

    assert differ_in_numbers_only(one, other) is numbers_only
