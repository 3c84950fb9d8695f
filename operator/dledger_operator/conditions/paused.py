"""Paused: `spec.paused` stops the operator from changing the group's objects."""

from dledger_operator.conditions.condition import Judgment
from dledger_operator.observed_state import ObservedGroup

TYPE = "Paused"


def judge(observed: ObservedGroup) -> Judgment:
    """Report the value of `spec.paused`."""
    if observed.paused:
        return Judgment(
            holds=True,
            reason="PausedByUser",
            message=(
                "spec.paused is true: changes to the spec are not applied; the Services still "
                "follow the leader"
            ),
        )
    return Judgment(holds=False, reason="NotPaused", message="changes to the spec are applied")
