"""A switchover, step by step, against a fake API server and fake members."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from dledger_kube.objects import group_body
from dledger_kube.switchover_world import SwitchoverWorld, switchover_body
from dledger_operator.behaviors.one_off import order
from dledger_operator.behaviors.one_off.stepped import ENDED_PHASES

TURNS_MAX = 2000


@dataclass(slots=True)
class Run:
    """One switchover and what has become of it."""

    world: SwitchoverWorld
    uid: str = "move-uid"

    @property
    def status(self) -> dict[str, Any]:
        return self.world.status(self.uid)

    @property
    def outcome(self) -> tuple[str, str]:
        return self.status["phase"], self.status["conditions"][0]["reason"]

    @property
    def message(self) -> str:
        return str(self.status["conditions"][0]["message"])


async def carried_out(world: SwitchoverWorld, **spec: Any) -> Run:
    """Let one operator work on a switchover until it has ended."""
    body = switchover_body(**spec)
    world.objects[body["metadata"]["uid"]] = body
    worker = world.worker("move-uid")
    for _ in range(TURNS_MAX):
        await worker._run_once()
        if worker.ended():
            return Run(world)
        world.pass_time(0.1)
    raise AssertionError(f"the switchover does not end: {world.status('move-uid')}")


async def test_the_leadership_moves_to_the_target_and_the_service_follows() -> None:
    run = await carried_out(SwitchoverWorld())

    assert run.outcome == ("Succeeded", "SwitchedOver")
    assert run.message == "the leadership moved from n1 to n2"
    assert [each[1:] for each in run.world.transfers] == [("n1", "n2")]
    assert (run.status["from"], run.status["term"]) == ("n1", 8)


async def test_the_status_tells_how_long_each_phase_took() -> None:
    run = await carried_out(SwitchoverWorld())

    phases = {each: run.status[f"{each}Seconds"] for each in ("check", "transfer", "service")}
    assert phases == {"check": 0.2, "transfer": 0.0, "service": 0.1}
    assert run.status["startedAt"] <= run.status["finishedAt"]


async def test_the_result_is_an_event() -> None:
    run = await carried_out(SwitchoverWorld())

    assert run.world.events == [f"Normal SwitchoverFinished: {run.message}"]


async def test_nothing_is_asked_if_the_target_leads_already() -> None:
    run = await carried_out(SwitchoverWorld(), target="n1")

    assert run.outcome == ("Succeeded", "AlreadyLeader")
    assert run.message == "n1 leads already, in term 7; nothing was changed"
    assert not run.world.transfers


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "lags": ({"lags": {"n2": 1001}}, "MemberLags", "n2 lacks 1001 committed entries, and may lack"),
    "no voter": ({"learners": {"n2"}}, "NotAVoter", "n2 is no voter of the group"),
    "silent": ({"silent": {"n2"}}, "MemberSilent", "n2 does not answer"),
    "not ready": ({"unready": {"n2"}}, "MemberNotReady", "n2 is not ready: it starts"),
    "to be removed": (
        {"group": group_body({"replicas": 1})},
        "MemberLeaving",
        "n2 is to be removed: spec.replicas asks for 1 members",
    ),
    "paused": (
        {"group": group_body({"paused": True})},
        "Paused",
        "spec.paused is true, so the operator changes nothing",
    ),
    "asleep": (
        {"group": group_body({"hibernate": True})},
        "Hibernated",
        "spec.hibernate is true, so the group has no pods, or none soon; wake it first",
    ),
    "members change": ({"changing": True}, "MembershipChanging", "a change of members is not"),
    "about to be replaced": (
        {"old_pods": {"n2", "n1"}},
        "RollUnderWay",
        "would take the leadership from n2 again; choose n0, or wait until the roll is done",
    ),
    "another leader is preferred": (
        {"group": group_body({"preferredLeader": {"member": "n1"}})},
        "PreferredLeader",
        "hand over to n1 again, as it would find that n2 leads, and spec.preferredLeader asks for",
    ),
    "no group": ({"group": None}, "GroupNotFound", "air/flights does not exist"),
}


@pytest.mark.parametrize(("state", "reason", "words"), REFUSED.values(), ids=REFUSED)
async def test_a_switchover_that_cannot_be_done_is_refused_in_words(
    state: dict[str, Any], reason: str, words: str
) -> None:
    run = await carried_out(SwitchoverWorld(**state))

    assert run.outcome == ("Failed", reason)
    assert words in run.message
    assert not run.world.transfers
    assert run.world.now_s < 1, "it is refused at once"


async def test_a_member_on_a_node_that_is_being_emptied_is_refused() -> None:
    world = SwitchoverWorld()
    world.nodes.readable = True
    for ordinal in range(3):
        spec = {"unschedulable": ordinal == 2}
        world.nodes.changed({"metadata": {"name": f"worker-{ordinal}"}, "spec": spec})

    run = await carried_out(world)

    assert run.outcome == ("Failed", "NodeEmptied")
    assert "n2 leads on node worker-2, which is being emptied: it is cordoned" in run.message


async def test_a_preferred_target_is_taken_from_a_leader_that_is_not() -> None:
    world = SwitchoverWorld(group=group_body({"preferredLeader": {"member": "n2"}}))

    assert (await carried_out(world)).outcome == ("Succeeded", "SwitchedOver")


async def test_a_member_without_a_pod_is_refused() -> None:
    run = await carried_out(SwitchoverWorld(), target="n5")

    assert run.outcome == ("Failed", "MemberMissing")
    assert run.message == "n5 has no pod in air/flights"


async def test_the_bound_on_the_lag_is_the_users() -> None:
    lags = {"n2": 5}

    assert (await carried_out(SwitchoverWorld(lags=lags), maxLagEntries=5)).outcome[0] == (
        "Succeeded"
    )
    assert (await carried_out(SwitchoverWorld(lags=lags), maxLagEntries=4)).outcome == (
        "Failed",
        "MemberLags",
    )


async def test_a_roll_that_has_replaced_nobody_yet_is_in_nobodys_way() -> None:
    run = await carried_out(SwitchoverWorld(old_pods={"n0", "n1", "n2"}))

    assert run.outcome == ("Succeeded", "SwitchedOver")


@pytest.mark.parametrize(
    "state", [{"silent": {"n0"}}, {"unready": {"n0"}}, {"lags": {"n0": 1001}}], ids=str
)
async def test_a_roll_whose_only_new_pod_cannot_lead_is_in_nobodys_way(
    state: dict[str, Any],
) -> None:
    """It has halted, perhaps for days, and the leader's machine may need work meanwhile."""
    run = await carried_out(SwitchoverWorld(old_pods={"n1", "n2"}, **state))

    assert run.outcome == ("Succeeded", "SwitchedOver")


async def test_a_group_without_a_leader_is_given_the_time() -> None:
    world = SwitchoverWorld(leader=None, in_service=None)
    run = await carried_out(world)

    assert run.outcome == ("Failed", "TimedOut")
    assert run.message == "n2 did not lead within 30 s; no member leads"
    assert 30 <= world.now_s < 31


async def test_a_service_that_does_not_follow_is_named() -> None:
    world = SwitchoverWorld(service_stuck=True)
    run = await carried_out(world, timeout="5s")

    assert run.outcome == ("Failed", "TimedOut")
    assert run.message.startswith(
        "n2 leads term 8, but the master Service has not followed within 5 s: flights-2 leads; "
    )


async def test_a_transfer_that_fails_is_tried_again_after_a_pause() -> None:
    run = await carried_out(SwitchoverWorld(refuses_next=2))

    assert run.outcome == ("Succeeded", "SwitchedOver")
    first, second, third = [at_s for at_s, _, _ in run.world.transfers]
    assert second - first >= 0.5
    assert third - second >= 1.0


async def test_a_lost_answer_does_not_hide_a_success() -> None:
    run = await carried_out(SwitchoverWorld(answers_lost=1))

    assert run.outcome == ("Succeeded", "SwitchedOver")
    assert len(run.world.transfers) == 1


async def test_no_transfer_is_asked_for_while_the_target_cannot_lead() -> None:
    """A leader takes no appends while it hands over, even to a member that is gone."""
    world = SwitchoverWorld(refuses_next=1)
    body = switchover_body()
    world.objects["move-uid"] = body
    worker = world.worker("move-uid")
    while not world.transfers:
        await worker._run_once()
        world.pass_time(0.1)
    world.silent = {"n2"}
    while not worker.ended():
        await worker._run_once()
        world.pass_time(0.5)

    run = Run(world)
    assert len(world.transfers) == 1
    assert run.outcome == ("Failed", "TimedOut")
    assert run.message == "n2 did not lead within 30 s; n1 leads; n2 does not answer"


async def test_an_invalid_spec_fails_with_its_key() -> None:
    run = await carried_out(SwitchoverWorld(), target="x")

    assert run.outcome == ("Failed", "InvalidSpec")
    assert run.message == "spec.target is 'x'; it must be a member, n0 to n6"


async def test_a_finished_switchover_is_deleted_after_its_time() -> None:
    world = SwitchoverWorld()
    await carried_out(world, ttlAfterFinished="1m")
    worker = world.worker("move-uid")

    world.pass_time(58)
    await worker._run_once()
    assert world.objects
    world.pass_time(2)
    await worker._run_once()

    assert not world.objects
    assert worker.done()


async def test_a_switchover_that_does_not_tell_when_it_ended_is_kept() -> None:
    world = SwitchoverWorld()
    world.objects["move-uid"] = switchover_body() | {"status": {"phase": "Succeeded"}}

    assert world.worker("move-uid").done()


def earlier(body: Mapping[str, Any], existing: Sequence[Mapping[str, Any]]) -> str:
    def has_ended(first: Mapping[str, Any]) -> bool:
        return first.get("status", {}).get("phase") in ENDED_PHASES

    return order.earlier(body, existing, has_ended)


def test_the_first_of_two_switchovers_goes_first() -> None:
    early, late = switchover_body("b"), switchover_body("a")
    late["metadata"]["creationTimestamp"] = "2026-01-01T00:00:01Z"

    assert earlier(late, [early, late]) == "b"
    assert earlier(early, [early, late]) == ""


def test_of_two_switchovers_of_one_second_the_name_decides() -> None:
    one, other = switchover_body("a"), switchover_body("b")

    assert earlier(other, [one, other]) == "a"
    assert earlier(one, [one, other]) == ""


def test_a_switchover_that_has_begun_keeps_its_turn() -> None:
    begun, other = switchover_body("b"), switchover_body("a")
    begun["status"] = {"startedAt": "2026-01-01T00:00:00Z"}

    assert earlier(other, [begun, other]) == "b"
    assert earlier(begun, [begun, other]) == ""


def test_switchovers_of_other_groups_and_finished_ones_do_not_count() -> None:
    finished, own = switchover_body("a"), switchover_body("c")
    finished["status"] = {"phase": "Failed"}
    elsewhere = switchover_body("b", groupRef={"name": "trains"})

    assert earlier(own, [finished, elsewhere, own]) == ""
