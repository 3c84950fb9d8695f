"""A roll that stops in the middle says why, and what waits for it says so too."""

from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from dledger_formats.http.status import NodeStatus
from dledger_kube.objects import IMAGES, NOW, group, group_body, membership, pod
from dledger_kube.rolling_world import RollingWorld
from dledger_kube.scaling_world import ScalingWorld
from dledger_operator.api_objects import CreationFailure, VolumeClaimView
from dledger_operator.behaviors.children.reconcile import ReconcileResult
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.group_snapshot import GroupSnapshot
from dledger_operator.behaviors.handover.nodes import Nodes
from dledger_operator.behaviors.leader.role_labeler import FollowResult
from dledger_operator.behaviors.members.scale_steps import next_step
from dledger_operator.behaviors.rolls.group_roll import GroupRoll
from dledger_operator.behaviors.rolls.permission import Cause, Held
from dledger_operator.behaviors.rolls.pods_to_roll import roll_state
from dledger_operator.behaviors.rolls.roll_steps import next_step as roll_step
from dledger_operator.behaviors.steps import Wait
from dledger_operator.clients.errors import MemberSilentError
from dledger_operator.problem import Problem
from dledger_operator.spec.revision import Revision
from dledger_operator.spec.shape import Shape

OLD, NEW, NEWER = (Revision(parts={"image": f"node:{number}"}) for number in (1, 2, 3))
WAITS = Problem(reason="WaitingForApproval", message="kubectl annotate dlg flights")


def half_rolled(**outcome: Any) -> GroupSnapshot:
    """A group of which one pod of three has the revision that the StatefulSet makes now."""
    made = GroupSnapshot.of(group_body(), IMAGES)
    made.membership = membership()
    pods = [pod(ordinal, revision=each) for ordinal, each in enumerate((OLD, OLD, NEW))]
    made.followed = FollowResult(pods=pods)
    made.reconciled = ReconcileResult(
        generation=1, group=group(), shape=Shape.of_new(3), in_force=NEW, **outcome
    )
    return made


async def halt(snapshot: GroupSnapshot) -> Problem | None:
    """Return why the roll has halted, as another loop finds it in the snapshot."""
    context = SimpleNamespace(
        api=None, authorized_requests=lambda *_: None, nodes=Nodes(), clock=lambda: 0.0,
        random=Random(1),
    )  # fmt: skip
    roll = GroupRoll(cast("Context", context), snapshot, on_event=lambda _: None)
    await roll.run_once(group_body() | {"metadata": {"generation": 1}}, True, None)
    return snapshot.roll_halt


async def test_a_roll_that_a_newer_spec_stops_in_the_middle_has_halted() -> None:
    held = Held(revision=NEWER, cause=Cause.SPEC, problem=WAITS)

    assert await halt(half_rolled(wanted=NEWER, held=held)) == WAITS


async def test_a_roll_whose_spec_is_not_in_effect_has_halted() -> None:
    refused = Problem(reason="ChildRefused", message="a webhook refuses it")

    assert await halt(half_rolled(wanted=NEWER, problem=refused)) == refused


async def test_no_roll_has_halted_while_every_pod_has_the_revision_in_force() -> None:
    held = Held(revision=NEWER, cause=Cause.SPEC, problem=WAITS)
    snapshot = half_rolled(wanted=NEWER, held=held)
    snapshot.followed = FollowResult(pods=[pod(each, revision=NEW) for each in range(3)])

    assert await halt(snapshot) is None


async def test_a_roll_whose_replaced_pod_cannot_be_created_has_halted() -> None:
    """So a leader on a cordoned node need not wait for it."""
    world = RollingWorld(size=3)
    del world.pods[2]
    world.image, snapshot = "node:2", half_rolled(wanted=NEW)
    snapshot.followed = FollowResult(pods=await world.member_pods("air", "flights"))
    snapshot.failures = [CreationFailure(pod="flights-2", message="exceeded quota")]

    async def silent(ip: str) -> NodeStatus:
        raise MemberSilentError(ip)

    context = SimpleNamespace(
        api=world, authorized_requests=lambda *_: world, nodes=Nodes(),
        clock=lambda: world.now_s, now=lambda: NOW, random=Random(1),
        member_http=SimpleNamespace(status=silent),
    )  # fmt: skip
    roll = GroupRoll(cast("Context", context), snapshot, on_event=lambda _: None)
    body = group_body() | {"metadata": {"generation": 1}}

    await roll.run_once(body, True, None)
    assert snapshot.roll_halt is None
    world.now_s += 10.0
    await roll.run_once(body, True, None)

    assert snapshot.roll_halt is not None
    assert snapshot.roll_halt.reason == "RollHalted"


def test_a_halted_roll_names_the_volume_claim_for_which_the_pod_waits() -> None:
    """The scheduler reports the claim as a problem of the pod, which other nodes would not cure."""
    unbound = Problem(reason="Unschedulable", message="unbound PersistentVolumeClaims")
    pending = VolumeClaimView(
        name="data-flights-2", ordinal=2, first_voters=3, identity="", leaving=False,
        problem=Problem(reason="VolumePending", message="data-flights-2 is Pending"),
    )  # fmt: skip
    new = pod(2, revision=NEW, ready=False, runs=False, problem=unbound)
    pods = [pod(0, revision=OLD), pod(1, revision=OLD), new]

    step = roll_step(
        roll_state(pods, {}, NEW, membership(), led=True, scaling=False, claims=[pending])
    )

    assert isinstance(step, Wait)
    assert step.reason == "RollHalted"
    assert "flights-2: VolumePending: data-flights-2 is Pending; " in step.message
    assert "create the storage class" in step.message


def test_a_group_that_is_to_hibernate_names_what_its_halted_roll_waits_for() -> None:
    state = replace(ScalingWorld(hibernate=True, rolling=True).state(), roll_halt=WAITS)

    step = next_step(state)

    assert isinstance(step, Wait)
    assert step.reason == "WaitingForApproval"
    assert step.message == (
        "pods are to be replaced before the group hibernates; kubectl annotate dlg flights"
    )
