"""A Kubernetes condition: a judgement, and since when it holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dledger_operator import names
from dledger_operator.views import Manifest

MESSAGE_LENGTH_MAX = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Whether something holds, and why."""

    holds: bool
    reason: str
    """CamelCase, for programs."""
    message: str
    """For people, with what to do where there is something to do."""


def stamped(
    kind: str,
    judgement: Judgement,
    *,
    previous: Mapping[str, Any] | None,
    now: datetime,
    generation: int,
) -> Manifest:
    """Make a condition of the API; its transition time moves only when its status does."""
    status = "True" if judgement.holds else "False"
    unchanged = previous is not None and previous.get("status") == status
    since = previous.get("lastTransitionTime") if previous and unchanged else None
    return {
        "type": kind,
        "status": status,
        "reason": judgement.reason,
        "message": judgement.message[:MESSAGE_LENGTH_MAX],
        "lastTransitionTime": since or names.timestamp(now),
        "observedGeneration": generation,
    }
