"""Decides when to reconcile a group again although no event calls for it. Pure."""

from typing import Final

from dledger_operator.behaviors.children.reconcile import ReconcileResult

WAITING_S: Final = 2.0
"""How soon the operator looks again for what no watch event reports: that a name is free."""
UNSETTLED_S: Final = 60.0
"""How soon the operator looks again at a group that does not match its spec."""


def next_look_s(outcome: ReconcileResult, *, led: bool, contested: bool) -> float | None:
    """Return the seconds until the next reconciliation; None if events suffice.

    `led` says whether the group ever had a leader, `contested` whether another client keeps
    changing a child.
    """
    if outcome.waits:
        return WAITING_S
    unsettled = (outcome.problem, outcome.warning, outcome.growth, outcome.held)
    if contested or not led or outcome.shape is None or any(unsettled):
        return UNSETTLED_S
    return None
