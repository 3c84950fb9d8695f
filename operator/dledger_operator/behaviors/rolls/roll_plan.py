"""The plan of a roll, as the group's status shows it."""

from collections.abc import Callable
from datetime import datetime

from dledger_operator.behaviors.children.reconcile import ReconcileResult
from dledger_operator.behaviors.rolls.permission import WAITING_FOR_WINDOW, Cause
from dledger_operator.behaviors.rolls.roll_state import RollPod
from dledger_operator.observed_state import RollPlan
from dledger_operator.problem import Problem
from dledger_operator.spec.revision import IMAGE, Revision
from dledger_operator.spec.update_window import UpdateWindow


def roll_plan(
    applied: ReconcileResult,
    in_order: Callable[[Revision | None], list[RollPod]],
    window: UpdateWindow | None,
    now: datetime,
    waiting: Problem | None,
) -> RollPlan | None:
    """Return which pods get which revision, and what for; None if all have it.

    `in_order` returns the pods that lack a revision, and `waiting` is what the next step waits for.
    Pods that lack the template in force get it first, even if another release of the operator
    would bring a new one: until that is approved, it reaches no pod.
    """
    wanted, held = applied.wanted, applied.held
    pods, cause = in_order(wanted), Cause.SPEC
    if held and held.cause is Cause.SPEC:
        waiting = held.problem
    elif held and not pods:
        wanted, cause, waiting = held.revision, held.cause, held.problem
        pods = in_order(wanted)
    if wanted is None or not pods:
        return None
    in_force = applied.in_force
    # An approval opens the window for one revision, and a new group does not wait for it.
    awaits_window = waiting is not None and waiting.reason == WAITING_FOR_WINDOW
    is_closed = window is not None and awaits_window and not window.closes_at(now)
    return RollPlan(
        revision=wanted.name,
        in_force=in_force.name if in_force else "",
        image_in_force=in_force.parts.get(IMAGE, "") if in_force else "",
        opens_at=window.opens_at(now) if window and is_closed else None,
        cause=cause.value,
        pods=[(pod.name, pod.behind) for pod in pods],
        waiting=waiting,
    )
