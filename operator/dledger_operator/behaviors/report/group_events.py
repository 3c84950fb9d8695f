"""Decides which Events report a group's leader and endpoints. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from dledger_formats.settings import GroupState
from dledger_operator import reasons
from dledger_operator.behaviors.report.event_recorder import (
    ENDPOINTS_MISMATCH,
    LEADER_CHANGED,
    SEED_UNUSED,
    EventNote,
)
from dledger_operator.conditions import endpoints_synced, quorum_healthy
from dledger_operator.conditions.condition import find
from dledger_operator.observed_state import LeaderChange
from dledger_operator.resources.event import NORMAL, WARNING
from dledger_operator.spec.group import Group
from dledger_operator.spec.shape import Shape

# During a failover the endpoints mismatch for a moment, which does not merit an Event.
MISMATCH_AGE_MIN: Final = timedelta(seconds=5)


def leader_change_event(change: LeaderChange) -> EventNote:
    """Return the Event for a leader change."""
    previous = f"; the previous leader was {change.from_member}" if change.from_member else ""
    return EventNote(
        severity=NORMAL,
        reason=LEADER_CHANGED,
        message=f"{change.to_member} leads term {change.term} ({change.reason}){previous}",
    )


def leader_events(
    change: LeaderChange, group: Group | None, shape: Shape | None, *, is_first: bool
) -> list[EventNote]:
    """Return the Events for a leader change; that of the change itself comes first."""
    return [leader_change_event(change), *(seed_unused_events(group, shape) if is_first else ())]


def seed_unused_events(group: Group | None, shape: Shape | None) -> list[EventNote]:
    """Return the Event for a group whose first leader did not begin it, although it has `seed`."""
    if group is None or group.seed is None or shape is None or shape.state is GroupState.NEW:
        return []
    message = (
        "the archive of spec.seed is not used: the volumes hold the log of an earlier group of "
        "this name, which goes on. To begin with the archive, delete this group and its claims, "
        "which deletes that log, and create it again"
    )
    return [EventNote(severity=WARNING, reason=SEED_UNUSED, message=message)]


class EndpointEvents:
    """Derives Events from conditions; keeps state so that a mismatch yields one Event."""

    def __init__(self) -> None:
        self._mismatched = False

    def on_report(self, conditions: Sequence[Mapping[str, Any]], now: datetime) -> list[EventNote]:
        """Return the Events to record about a group that has these conditions."""
        synced = find(conditions, endpoints_synced.TYPE)
        asleep = find(conditions, quorum_healthy.TYPE).get("reason") in quorum_healthy.ON_PURPOSE
        if synced["status"] != "False" or synced["reason"] == reasons.NO_LEADER or asleep:
            self._mismatched = False
            return []
        age = now - datetime.fromisoformat(synced["lastTransitionTime"])
        if self._mismatched or age < MISMATCH_AGE_MIN:
            return []
        self._mismatched = True
        return [EventNote(severity=WARNING, reason=ENDPOINTS_MISMATCH, message=synced["message"])]
