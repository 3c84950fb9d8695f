"""All conditions of a group, in display order."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from dledger_operator.api_objects import Manifest
from dledger_operator.conditions import (
    audit_passed,
    broker_serving,
    degraded,
    endpoints_synced,
    leader_elected,
    leader_placed,
    paused,
    progressing,
    quorum_healthy,
    ready,
)
from dledger_operator.conditions.condition import Judgment, stamped
from dledger_operator.observed_state import ObservedGroup

_OF_PODS: Final = (
    ready,
    leader_elected,
    quorum_healthy,
    endpoints_synced,
    degraded,
    progressing,
    leader_placed,
    broker_serving,
)
"""The conditions that depend on the pods and their answers."""
ALL: Final = (*_OF_PODS, audit_passed, paused)
PODS_UNKNOWN: Final = "PodsUnknown"


def build(
    observed: ObservedGroup,
    *,
    previous: Sequence[Mapping[str, Any]],
    now: datetime,
    generation: int,
) -> list[Manifest]:
    """Build every condition; `previous` are the group's current conditions. A group without
    a broker has no condition about it.
    """
    unknown = {*_OF_PODS} if not observed.pods_known else set()
    if observed.problem:  # why the spec is not in effect does not depend on the pods
        unknown.discard(ready)
    before = {condition.get("type"): condition for condition in previous}
    return [
        stamped(
            kind.TYPE,
            _pods_unknown(observed) if kind in unknown else kind.judge(observed),
            previous=before.get(kind.TYPE),
            now=now,
            generation=generation,
        )
        for kind in ALL
        if kind is not broker_serving or observed.broker is not None
    ]


def _pods_unknown(observed: ObservedGroup) -> Judgment:
    """Return that nothing is known: a group is not reported as broken if nobody could check it."""
    message = "the group's pods have not been listed yet"
    if observed.follow_problem:
        message = observed.follow_problem.message
    elif observed.problem:
        message = "the spec cannot be followed, so the operator does not look at the group's pods"
    return Judgment(holds=None, reason=PODS_UNKNOWN, message=message)
