"""When a group is reconciled again, although no event calls for it."""

from dataclasses import replace

import pytest

from dledger_kube.objects import group
from dledger_operator.behaviors.children.next_look import UNSETTLED_S, WAITING_S, next_look_s
from dledger_operator.behaviors.children.ownership import NAME_TAKEN
from dledger_operator.behaviors.children.reconcile import ReconcileResult
from dledger_operator.behaviors.rolls.permission import Cause, Held
from dledger_operator.problem import Problem
from dledger_operator.spec.revision import Revision
from dledger_operator.spec.shape import Shape

SETTLED = ReconcileResult(generation=1, group=group(), shape=Shape.of_new(3))
PROBLEM = Problem(reason="Odd", message="something is odd")


def test_events_tell_everything_about_a_settled_group() -> None:
    assert next_look_s(SETTLED, led=True, contested=False) is None


@pytest.mark.parametrize(
    "outcome",
    [
        replace(SETTLED, problem=PROBLEM),
        replace(SETTLED, warning=PROBLEM),
        replace(SETTLED, growth=PROBLEM),
        replace(SETTLED, held=Held(revision=Revision(parts={}), cause=Cause.SPEC, problem=PROBLEM)),
        replace(SETTLED, shape=None),
    ],
    ids=["problem", "warning", "growth", "held", "paused"],
)
def test_what_is_not_settled_is_looked_at_once_a_minute(outcome: ReconcileResult) -> None:
    """A window opens, a cool-down ends and a quota is raised without an event."""
    assert next_look_s(outcome, led=True, contested=False) == UNSETTLED_S


def test_a_group_without_a_leader_and_a_contested_child_are_looked_at_once_a_minute() -> None:
    assert next_look_s(SETTLED, led=False, contested=False) == UNSETTLED_S
    assert next_look_s(SETTLED, led=True, contested=True) == UNSETTLED_S


def test_a_name_that_is_taken_is_looked_at_soon() -> None:
    taken = replace(SETTLED, problem=Problem(reason=NAME_TAKEN, message="taken"))

    assert next_look_s(taken, led=True, contested=False) == WAITING_S
