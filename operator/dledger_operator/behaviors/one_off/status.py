"""The part of a status that is the same for all one-off objects. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from dledger_operator.api_objects import Manifest
from dledger_operator.conditions.condition import Judgment, stamped

COMPLETE: Final = "Complete"
"""The type of the condition that shows the result."""


def status_of(
    phase: str,
    judgment: Judgment,
    *,
    previous: Mapping[str, Any],
    now: datetime,
    generation: int,
) -> Manifest:
    """Return a status with the phase and the result so far, and nothing else."""
    conditions = previous.get("conditions") or []
    return {
        "observedGeneration": generation,
        "phase": phase,
        "conditions": [
            stamped(
                COMPLETE,
                judgment,
                previous=next((each for each in conditions if each.get("type") == COMPLETE), None),
                now=now,
                generation=generation,
            )
        ],
    }
