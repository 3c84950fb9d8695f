"""Paused: the user asked the operator to leave the group's objects as they are."""

from dledger_operator.conditions.condition import Judgement
from dledger_operator.facts import GroupFacts

TYPE = "Paused"


def judge(facts: GroupFacts) -> Judgement:
    """True while `spec.paused` is."""
    if facts.paused:
        return Judgement(
            holds=True,
            reason="PausedByUser",
            message=(
                "spec.paused is true: changes of the spec are not applied; the Services still "
                "follow the leader"
            ),
        )
    return Judgement(holds=False, reason="NotPaused", message="changes of the spec are applied")
