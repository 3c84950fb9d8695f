"""Decides whether a group that is to be rolled and to be scaled is scaled first. Pure."""

from dledger_operator import reasons
from dledger_operator.behaviors.members.scale_steps import CHANGE_UNDER_WAY
from dledger_operator.problem import Problem


def scaling_goes_first(problem: Problem | None) -> bool:
    """Return whether a group that is to be scaled is scaled before it is rolled. `problem` is why
    the next step of scaling cannot be taken now.

    One rule keeps the two from waiting for each other: scaling goes first while it can take a step,
    and a roll continues while scaling waits. What scaling waits for, for example a member that does
    not answer or an old setting, may be just what the roll repairs; and every step of a roll checks
    the majority by itself. A roll waits for scaling only while a change of members is not committed
    yet, which ends without the operator.
    """
    return problem is None or problem.reason in (CHANGE_UNDER_WAY, reasons.MEMBERSHIP_CHANGING)
