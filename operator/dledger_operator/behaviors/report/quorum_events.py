"""Decides which Events report that a group has lost its majority, and that it has one again. Pure.

Like those about members, they are derived from the previous and the new status, so an operator that
takes over in between reports neither twice and omits none. The status has the start of the loss
more precisely than the condition, whose times Kubernetes cuts to whole seconds.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from dledger_operator import reasons
from dledger_operator.api_objects import Manifest
from dledger_operator.behaviors.report.event_recorder import QUORUM_RESTORED, EventNote
from dledger_operator.conditions import quorum_healthy
from dledger_operator.conditions.condition import find
from dledger_operator.resources.event import NORMAL, WARNING

QUORUM_LOSS_KEY: Final = "quorumLoss"
LOSS_AGE_MIN: Final = timedelta(seconds=2)
"""A shorter loss is not reported: no member is ready during the election of a handover."""
_REPORTED: Final = "reported"


def quorum_loss_to_json(
    before: Mapping[str, Any], conditions: Sequence[Mapping[str, Any]], now: datetime
) -> Manifest | None:
    """Encode since when the group lacks the majority that it had; None if it has one, or has lost
    none. `before` is the last status, and `conditions` are the new ones.

    Members that start for the first time, or after hibernation, have lost nothing.
    """
    loss: Mapping[str, Any] = before.get(QUORUM_LOSS_KEY) or {}
    healthy = find(conditions, quorum_healthy.TYPE)
    if healthy.get("status") == "True":
        return None
    if healthy.get("status") == "Unknown":
        return dict(loss) or None
    if healthy.get("reason") in quorum_healthy.ON_PURPOSE:
        return dict(loss) if loss.get(_REPORTED) else None
    if not loss and not _had_majority(before):
        return None
    since = _since(loss, now)
    is_due = now - since >= LOSS_AGE_MIN
    shown = since.astimezone(UTC).isoformat()
    return {"since": shown, _REPORTED: bool(loss.get(_REPORTED)) or is_due}


def _since(loss: Mapping[str, Any], now: datetime) -> datetime:
    """Return when a loss began; now if it is new. A time in the future, recorded by an operator
    whose clock was ahead, must not keep it from being reported.
    """
    recorded = loss.get("since")
    return min(datetime.fromisoformat(recorded), now) if recorded else now


def _had_majority(before: Mapping[str, Any]) -> bool:
    """Return whether the group had a majority when its pods were last known. While they are not,
    the condition is Unknown, and the status keeps how many failures the group tolerated before.
    """
    last = find(before.get("conditions") or [], quorum_healthy.TYPE).get("status")
    kept: int = before.get("toleratedFailures", -1)
    return last == "True" or (last == "Unknown" and kept >= 0)


def quorum_events(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[EventNote]:
    """Compare two statuses and return the Events to record."""
    was_lost, is_lost = (
        bool((status.get(QUORUM_LOSS_KEY) or {}).get(_REPORTED)) for status in (before, after)
    )
    message = find(after["conditions"], quorum_healthy.TYPE)["message"]
    if is_lost and not was_lost:
        return [EventNote(severity=WARNING, reason=reasons.QUORUM_LOST, message=message)]
    if was_lost and not is_lost:
        return [EventNote(severity=NORMAL, reason=QUORUM_RESTORED, message=message)]
    return []
