"""A replacement, step by step, against a fake API server and fake members."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from dledger_kube.objects import group_body
from dledger_kube.replace_world import ReplaceWorld, replace_body

TURNS_MAX = 2000


@dataclass(slots=True)
class Run:
    """One replacement and what has become of it."""

    world: ReplaceWorld
    waited_for: list[str]
    """The reasons that its status had, in order."""

    @property
    def status(self) -> dict[str, Any]:
        return self.world.status("renew-uid")

    @property
    def outcome(self) -> tuple[str, str]:
        return self.world.outcome("renew-uid")

    @property
    def message(self) -> str:
        return str(self.status["conditions"][0]["message"])


async def carried_out(
    world: ReplaceWorld, meanwhile: Callable[[ReplaceWorld], None] = lambda _: None, **spec: Any
) -> Run:
    """Let one operator work on a replacement until it has ended."""
    world.objects["renew-uid"] = replace_body(**spec)
    worker, run = world.worker("renew-uid"), Run(world, [])
    for _ in range(TURNS_MAX):
        await worker._run_once()
        reason = run.outcome[1]
        if reason not in run.waited_for[-1:]:
            run.waited_for.append(reason)
        if worker.ended():
            return run
        world.pass_time(1)
        meanwhile(world)
    raise AssertionError(f"the replacement does not end: {run.status}")


def make_node(world: ReplaceWorld, ready: str) -> None:
    """Let the operator know the Node of n2."""
    condition = {"type": "Ready", "status": ready}
    world.nodes.changed({"metadata": {"name": "worker-2"}, "status": {"conditions": [condition]}})


def with_lost(member: str = "n2", count: int = 3, **fields: Any) -> ReplaceWorld:
    world = ReplaceWorld.of(count, **fields)
    world.members[member].lose()
    return world


async def test_a_lost_member_gets_a_new_volume_and_joins_again() -> None:
    run = await carried_out(with_lost())

    assert run.outcome == ("Succeeded", "Replaced")
    assert run.message == "n2 has the new volume pv-2-1 and votes again"
    assert run.waited_for == ["Running", "MemberJoining", "Replaced"]
    assert run.status["claimUid"] == "claim-2-0"
    assert (run.status["volume"], run.status["newVolume"]) == ("pv-2-0", "pv-2-1")
    assert run.world.deleted == ["claim-2-0"]


async def test_a_second_replacement_of_one_member_leaves_its_new_volume_alone() -> None:
    """The second one finds the member not serving: it has just got its volume."""
    world = with_lost()
    world.objects["again-uid"] = replace_body("renew-again", "again-uid")
    second = world.worker("again-uid")

    def stay_down(world: ReplaceWorld) -> None:
        lost = world.members["n2"]
        lost.alive = lost.claim_serial > 0 and world.now_s > 20

    world.objects["renew-uid"] = replace_body()
    first = world.worker("renew-uid")
    for _ in range(60):
        await first._run_once()
        await second._run_once()
        world.pass_time(1)
        stay_down(world)

    assert world.outcome("renew-uid") == ("Succeeded", "Replaced")
    assert world.outcome("again-uid") == ("Failed", "MemberServes")
    assert world.deleted == ["claim-2-0"]


async def test_the_status_tells_how_long_each_phase_took() -> None:
    run = await carried_out(with_lost())

    phases = {each: run.status[f"{each}Seconds"] for each in ("check", "volume", "join")}
    assert phases == {"check": 2.0, "volume": 2.0, "join": 3.0}
    assert run.status["startedAt"] <= run.status["finishedAt"]


async def test_the_result_is_an_event() -> None:
    run = await carried_out(with_lost())

    assert run.world.events == [f"Normal ReplacementFinished: {run.message}"]


async def test_a_claim_that_somebody_has_deleted_is_let_go() -> None:
    world = with_lost()
    world.members["n2"].claim_leaving = True

    run = await carried_out(world)

    assert run.outcome == ("Succeeded", "Replaced")
    assert not run.world.deleted, "it was deleted already"


async def test_a_pod_whose_claim_is_gone_is_removed_so_that_it_gets_another_one() -> None:
    world = with_lost()
    world.members["n2"].has_claim = False

    run = await carried_out(world)

    assert run.outcome == ("Succeeded", "Replaced")
    assert run.status["newVolume"] == "pv-2-1"
    assert not run.world.deleted, "it was gone already"


async def test_a_pod_with_a_node_and_an_unbound_claim_was_made_for_an_earlier_claim() -> None:
    """Kubernetes binds a claim before it chooses the node of its pod, so this pod never starts."""
    world = with_lost()
    lost = world.members["n2"]
    lost.has_claim = False

    def make_claim(world: ReplaceWorld) -> None:
        if not lost.has_claim and "claimUid" in world.status("renew-uid"):
            lost.has_claim, lost.claim_serial = True, 7
        lost.bound = lost.alive = lost.serial > 1

    run = await carried_out(world, make_claim)

    assert run.outcome == ("Succeeded", "Replaced")
    assert run.status["newVolume"] == "pv-2-7"


async def test_a_member_whose_claim_is_gone_keeps_its_pod_while_it_is_needed() -> None:
    world = with_lost()
    world.members["n2"].has_claim = False

    def come_back(world: ReplaceWorld) -> None:
        lost, other = world.members["n2"], world.members["n1"]
        needed = "claimUid" in world.status("renew-uid") and world.now_s < 30
        if needed and not lost.pod_leaving:
            lost.alive, other.alive = True, False
        elif world.now_s >= 30:
            other.alive = True

    run = await carried_out(world, come_back)

    assert run.waited_for[1] == "QuorumAtRisk"
    assert run.outcome == ("Succeeded", "Replaced")


async def test_a_pod_on_a_dead_node_is_never_forced_and_the_status_says_what_to_do() -> None:
    world = with_lost()
    world.members["n2"].node_dead = True

    def fence(world: ReplaceWorld) -> None:
        if world.now_s > 60:
            world.members["n2"].node_dead = False

    run = await carried_out(world, fence)

    assert run.outcome == ("Succeeded", "Replaced")
    assert run.world.now_s > 60


async def test_a_member_that_comes_back_after_its_claim_was_deleted_stays_while_it_is_needed() -> (
    None
):
    world = with_lost()

    def come_back(world: ReplaceWorld) -> None:
        lost, other = world.members["n2"], world.members["n1"]
        if world.deleted and not lost.pod_leaving and world.now_s < 30:
            lost.alive, other.alive = True, False
        elif world.now_s >= 30:
            other.alive = True

    run = await carried_out(world, come_back)

    assert run.waited_for[1] == "QuorumAtRisk"
    assert run.outcome == ("Succeeded", "Replaced")


async def test_a_group_without_a_leader_is_given_the_time() -> None:
    world = with_lost(leader=None, elects=False)

    def elect(world: ReplaceWorld) -> None:
        world.elects = world.now_s > 20

    run = await carried_out(world, elect)

    assert run.waited_for[1] == "NoLeader"
    assert run.outcome == ("Succeeded", "Replaced")


def crashed(*members: str) -> Callable[[ReplaceWorld], None]:
    def change(world: ReplaceWorld) -> None:
        for each in members:
            world.members[each].alive = False

    return change


def joining(world: ReplaceWorld) -> None:
    world.members["n1"].whole = False


def lagging(world: ReplaceWorld) -> None:
    world.members["n1"].lags = 3


def whole_again(world: ReplaceWorld) -> None:
    world.members["n2"].alive = True


def joining_itself(world: ReplaceWorld) -> None:
    world.members["n2"].alive, world.members["n2"].whole = True, False


def changing(world: ReplaceWorld) -> None:
    world.changing = True


def spec(**fields: Any) -> Callable[[ReplaceWorld], None]:
    def change(world: ReplaceWorld) -> None:
        world.group = group_body(fields)

    return change


def no_group(world: ReplaceWorld) -> None:
    world.group = None


REFUSED: dict[str, tuple[Callable[[ReplaceWorld], None], str, str]] = {
    "a second member is down": (
        crashed("n1"),
        "QuorumAtRisk",
        "without n2, only n0 would be whole, and 2 of 3 voters must be: n1 does not answer. Repair",
    ),
    "a second member joins": (
        joining,
        "QuorumAtRisk",
        "n1 is not ready (waits for entries)",
    ),
    "a second member lacks entries": (
        lagging,
        "QuorumAtRisk",
        "n1 lacks 3 committed entries",
    ),
    "it serves": (whole_again, "MemberServes", "n2 serves, so it is not lost"),
    "it joins already": (joining_itself, "MemberJoining", "n2 is joining again already"),
    "members change": (changing, "MembershipChanging", "a change of members is not committed yet"),
    "to be removed": (spec(replicas=1), "NotAMember", "n2 is no member: spec.replicas asks for 1"),
    "paused": (spec(paused=True), "Paused", "spec.paused is true, so the operator changes nothing"),
    "asleep": (spec(hibernate=True), "Hibernated", "spec.hibernate is true, so the group has no"),
    "an invalid spec": (spec(storage={}), "GroupInvalid", "the spec of the group is invalid: spec"),
    "no group": (no_group, "GroupNotFound", "air/flights does not exist"),
}


@pytest.mark.parametrize(("change", "reason", "words"), REFUSED.values(), ids=REFUSED)
async def test_a_replacement_that_would_cost_something_is_refused_in_words(
    change: Callable[[ReplaceWorld], None], reason: str, words: str
) -> None:
    world = with_lost()
    change(world)

    run = await carried_out(world)

    assert run.outcome == ("Failed", reason)
    assert words in run.message
    assert not run.world.deleted
    assert run.world.now_s < 3, "it is refused at once"


async def test_the_only_member_of_a_group_is_never_replaced() -> None:
    run = await carried_out(with_lost("n0", count=1), member="n0", timeout="1m")

    assert run.outcome == ("Failed", "TimedOut")
    assert run.message == (
        "the replacement could not begin within 60 s; nothing was removed: no member leads, so "
        "nothing shows that the others have every entry"
    )
    assert not run.world.deleted


async def test_what_was_removed_stays_removed_when_the_time_is_over() -> None:
    world = with_lost()
    world.members["n2"].node_dead = True
    make_node(world, ready="Unknown")

    run = await carried_out(world, timeout="1m")

    assert run.outcome == ("Failed", "TimedOut")
    assert "did not get a new volume and join within 60 s; what was removed stays" in run.message
    assert "pod flights-2 on node worker-2 is terminating. If the machine is off" in run.message


async def test_a_pod_that_does_not_end_on_a_ready_node_is_no_reason_to_delete_the_node() -> None:
    world = with_lost()
    world.members["n2"].node_dead = True
    make_node(world, ready="True")

    run = await carried_out(world, timeout="1m")

    assert "The node worker-2 is Ready, but its kubelet does not confirm" in run.message
    assert "delete its Node" not in run.message


async def test_a_member_that_is_removed_from_the_group_meanwhile_is_not_waited_for() -> None:
    world = with_lost()

    def shrink(world: ReplaceWorld) -> None:
        if world.deleted:
            world.group = group_body({"replicas": 1})

    run = await carried_out(world, shrink)

    assert run.outcome == ("Failed", "MemberLeaving")


async def test_a_group_that_is_paused_meanwhile_is_left_alone_until_it_is_resumed() -> None:
    world = with_lost()

    def pause(world: ReplaceWorld) -> None:
        if world.deleted:
            world.group = group_body({"paused": world.now_s < 20})

    run = await carried_out(world, pause)

    assert run.waited_for[1] == "Paused"
    assert run.outcome == ("Succeeded", "Replaced")


async def test_an_invalid_spec_fails_with_its_key() -> None:
    run = await carried_out(with_lost(), member="x")

    assert run.outcome == ("Failed", "InvalidSpec")
    assert run.message == "spec.member is 'x'; it must be a member, n0 to n6"


async def test_a_finished_replacement_is_deleted_after_its_time() -> None:
    world = with_lost()
    await carried_out(world, ttlAfterFinished="1m")
    worker = world.worker("renew-uid")

    world.pass_time(61)
    await worker._run_once()

    assert not world.objects
    assert worker.done()


async def test_a_member_that_its_leader_reaches_keeps_its_volume() -> None:
    """Its page alone does not answer the operator."""
    world = ReplaceWorld.of(3)
    world.members["n2"].answers = False

    run = await carried_out(world, timeout="60s")

    assert run.outcome == ("Failed", "TimedOut")
    assert "the leader reaches n2, although its page does not answer" in run.message
    assert not run.world.deleted
