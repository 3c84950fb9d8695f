"""A Kubernetes condition: its status, reason, message and last transition time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dledger_operator import names
from dledger_operator.api_objects import Manifest

MESSAGE_LENGTH_MAX = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """Whether a condition holds, and why."""

    holds: bool | None
    """None if that is not known."""
    reason: str
    """The machine-readable reason, in CamelCase."""
    message: str
    """The human-readable reason, with what to do if the user has to act."""


def find(conditions: Sequence[Mapping[str, Any]], kind: str) -> Mapping[str, Any]:
    """Return the condition of this type; empty if there is none."""
    return next((each for each in conditions if each.get("type") == kind), {})


def stamped(
    kind: str,
    judgment: Judgment,
    *,
    previous: Mapping[str, Any] | None,
    now: datetime,
    generation: int,
) -> Manifest:
    """Build an API condition. Its transition time changes only when its status changes."""
    status = "Unknown" if judgment.holds is None else str(judgment.holds)
    unchanged = previous is not None and previous.get("status") == status
    since = previous.get("lastTransitionTime") if previous and unchanged else None
    return {
        "type": kind,
        "status": status,
        "reason": judgment.reason,
        "message": judgment.message[:MESSAGE_LENGTH_MAX],
        "lastTransitionTime": since or names.timestamp(now),
        "observedGeneration": generation,
    }
