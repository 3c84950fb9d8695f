"""Decides which Events to record for a group. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from dledger_operator.behaviours.report.event_recorder import (
    ENDPOINTS_MISMATCH,
    LEADER_CHANGED,
    QUORUM_LOST,
    QUORUM_RESTORED,
    EventNote,
)
from dledger_operator.conditions import endpoints_synced, quorum_healthy
from dledger_operator.observed_state import LeaderChange
from dledger_operator.resources.event import NORMAL, WARNING

# During a failover the endpoints mismatch for a moment, which does not merit an Event.
MISMATCH_AGE_MIN: Final = timedelta(seconds=5)
LOSS_AGE_MIN: Final = timedelta(seconds=2)
"""During an election no member is ready, so a planned handover would be a loss."""


def leader_change_event(change: LeaderChange) -> EventNote:
    """Return the Event for a leader change."""
    previous = f"; the previous leader was {change.from_member}" if change.from_member else ""
    return EventNote(
        severity=NORMAL,
        reason=LEADER_CHANGED,
        message=f"{change.to_member} leads term {change.term} ({change.reason}){previous}",
    )


class ConditionEvents:
    """Derives Events from changed conditions; keeps state so that a change yields one Event."""

    def __init__(self) -> None:
        self._had_quorum = False
        self._quorum_lost = False
        self._mismatched = False

    def on_change(
        self,
        before: Sequence[Mapping[str, Any]],
        after: Sequence[Mapping[str, Any]],
        now: datetime,
    ) -> list[EventNote]:
        """Compare two lists of conditions and return the Events to record."""
        return [*self._quorum_events(before, after, now), *self._endpoint_events(after, now)]

    def _quorum_events(
        self,
        before: Sequence[Mapping[str, Any]],
        after: Sequence[Mapping[str, Any]],
        now: datetime,
    ) -> list[EventNote]:
        healthy = _find(after, quorum_healthy.TYPE)
        if healthy["status"] == "True":
            restored, self._had_quorum, self._quorum_lost = self._quorum_lost, True, False
            note = EventNote(severity=NORMAL, reason=QUORUM_RESTORED, message=healthy["message"])
            return [note] if restored else []
        self._had_quorum |= _find(before, quorum_healthy.TYPE).get("status") == "True"
        if healthy["reason"] in quorum_healthy.ON_PURPOSE:
            self._had_quorum = False  # members that are starting again have lost nothing
        age = now - datetime.fromisoformat(healthy["lastTransitionTime"])
        if self._quorum_lost or not self._had_quorum or age < LOSS_AGE_MIN:
            return []
        self._quorum_lost = True
        return [EventNote(severity=WARNING, reason=QUORUM_LOST, message=healthy["message"])]

    def _endpoint_events(
        self, after: Sequence[Mapping[str, Any]], now: datetime
    ) -> list[EventNote]:
        synced = _find(after, endpoints_synced.TYPE)
        asleep = _find(after, quorum_healthy.TYPE).get("reason") in quorum_healthy.ON_PURPOSE
        if synced["status"] == "True" or synced["reason"] == "NoLeader" or asleep:
            self._mismatched = False
            return []
        age = now - datetime.fromisoformat(synced["lastTransitionTime"])
        if self._mismatched or age < MISMATCH_AGE_MIN:
            return []
        self._mismatched = True
        return [EventNote(severity=WARNING, reason=ENDPOINTS_MISMATCH, message=synced["message"])]


def _find(conditions: Sequence[Mapping[str, Any]], kind: str) -> Mapping[str, Any]:
    return next((each for each in conditions if each.get("type") == kind), {})
