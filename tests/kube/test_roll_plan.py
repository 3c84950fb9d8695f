"""The plan of a roll tells which pods get which revision, also when the operator is upgraded."""

from datetime import timedelta
from typing import Any

import pytest

from dledger_kube.objects import IMAGES, NOW, group, group_body, membership, observed_group, pod
from dledger_operator.behaviors.children.reconcile import ReconcileResult
from dledger_operator.behaviors.group_snapshot import GroupSnapshot
from dledger_operator.behaviors.leader.role_labeler import FollowResult
from dledger_operator.behaviors.rolls.permission import Cause, Held
from dledger_operator.conditions import progressing
from dledger_operator.problem import Problem
from dledger_operator.spec.revision import Revision

OLD, NEW, NEWER = (Revision(parts={"image": f"node:{number}"}) for number in (1, 2, 3))
HALTED = Problem(reason="RollHalted", message="flights-2: ImagePullBackOff")
WAITS = Problem(reason="WaitingForApproval", message="approve it")


def snapshot(
    runs: list[Revision], spec: dict[str, Any] | None = None, **outcome: Any
) -> GroupSnapshot:
    made = GroupSnapshot.of(group_body(spec), IMAGES)
    made.membership = membership()
    made.followed = FollowResult(pods=[pod(k, revision=each) for k, each in enumerate(runs)])
    made.reconciled = ReconcileResult(group=group(), **outcome)
    return made


def held(cause: Cause) -> Held:
    return Held(revision=NEWER, cause=cause, problem=WAITS)


def test_an_upgrade_in_the_middle_of_a_roll_changes_neither_its_target_nor_its_cause() -> None:
    of = snapshot([OLD, OLD, NEW], wanted=NEW, in_force=NEW, held=held(Cause.OPERATOR))
    plan = of.plan(NOW, HALTED)

    assert plan is not None
    assert (plan.revision, plan.cause, plan.waiting) == (NEW.name, "Spec", HALTED)
    assert (plan.in_force, plan.image_in_force) == (NEW.name, "node:2")
    assert {why for _, why in plan.pods} == {"image node:1 to node:2"}


def test_an_upgrade_after_a_roll_waits_for_its_approval() -> None:
    of = snapshot([NEW, NEW, NEW], wanted=NEW, in_force=NEW, held=held(Cause.OPERATOR))
    plan = of.plan(NOW, None)

    assert plan is not None
    assert (plan.revision, plan.cause, plan.waiting) == (NEWER.name, "Operator", WAITS)
    assert plan.in_force == NEW.name


def test_a_change_that_waits_names_the_revision_that_new_pods_get_until_then() -> None:
    of = snapshot([OLD, NEW, NEW], wanted=NEWER, in_force=NEW, held=held(Cause.SPEC))
    plan = of.plan(NOW, HALTED)

    assert plan is not None
    assert (plan.revision, plan.in_force, plan.waiting) == (NEWER.name, NEW.name, WAITS)


@pytest.mark.parametrize(
    ("waiting", "opens"),
    [
        (Problem(reason="WaitingForWindow", message="not yet"), True),
        (Problem(reason="PodStarting", message="waits for flights-2"), False),
        (None, False),
    ],
    ids=["closed", "approved", "approved, and nothing is in the way"],
)
def test_a_plan_says_when_its_window_opens_only_while_it_waits_for_that(
    waiting: Problem | None, *, opens: bool
) -> None:
    """An approval opens the window for one revision."""
    closed = {"from": f"{NOW:%H:%M}", "to": f"{NOW + timedelta(hours=1):%H:%M}"}
    spec = {"updatePolicy": "Window", "updateWindow": closed}
    of = snapshot([OLD, NEW, NEW], spec, wanted=NEW, in_force=NEW)

    plan = of.plan(NOW - timedelta(hours=2), waiting)

    assert plan is not None
    assert plan.opens_at == (NOW if opens else None)
    during = of.plan(NOW, waiting)
    assert during is not None
    assert during.opens_at is None, "it is open"


def test_a_change_is_not_done_while_the_last_replaced_pod_fails() -> None:
    judged = progressing.judge(observed_group(roll_problem=HALTED))

    assert (judged.holds, judged.reason) == (True, "RollHalted")
    assert "flights-2: ImagePullBackOff" in judged.message
    assert progressing.judge(observed_group()).reason == "AsRequested"


@pytest.mark.parametrize("cause", list(Cause))
def test_a_plan_without_pods_is_none(cause: Cause) -> None:
    assert snapshot([NEWER] * 3, wanted=NEWER, held=held(cause)).plan(NOW, None) is None
