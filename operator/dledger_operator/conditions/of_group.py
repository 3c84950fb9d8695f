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
from dledger_operator.conditions.condition import stamped
from dledger_operator.observed_state import ObservedGroup

ALL: Final = (
    ready,
    leader_elected,
    quorum_healthy,
    endpoints_synced,
    degraded,
    progressing,
    leader_placed,
    broker_serving,
    audit_passed,
    paused,
)


def build(
    observed: ObservedGroup,
    *,
    previous: Sequence[Mapping[str, Any]],
    now: datetime,
    generation: int,
) -> list[Manifest]:
    """Build every condition; `previous` are the group's current conditions. A group that is no
    broker has none about it.
    """
    before = {condition.get("type"): condition for condition in previous}
    return [
        stamped(
            kind.TYPE,
            kind.judge(observed),
            previous=before.get(kind.TYPE),
            now=now,
            generation=generation,
        )
        for kind in ALL
        if kind is not broker_serving or observed.broker is not None
    ]
