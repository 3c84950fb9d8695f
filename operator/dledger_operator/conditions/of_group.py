"""All conditions of a group, in the order in which people read them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from dledger_operator.conditions import (
    degraded,
    endpoints_synced,
    leader_elected,
    paused,
    progressing,
    quorum_healthy,
    ready,
)
from dledger_operator.conditions.condition import stamped
from dledger_operator.facts import GroupFacts
from dledger_operator.views import Manifest

ALL: Final = (
    ready,
    leader_elected,
    quorum_healthy,
    endpoints_synced,
    degraded,
    progressing,
    paused,
)


def build(
    facts: GroupFacts,
    *,
    previous: Sequence[Mapping[str, Any]],
    now: datetime,
    generation: int,
) -> list[Manifest]:
    """Judge and stamp every condition."""
    before = {condition.get("type"): condition for condition in previous}
    return [
        stamped(
            kind.TYPE,
            kind.judge(facts),
            previous=before.get(kind.TYPE),
            now=now,
            generation=generation,
        )
        for kind in ALL
    ]
