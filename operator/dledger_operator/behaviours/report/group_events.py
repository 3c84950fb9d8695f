"""Decides what of a group is news. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from dledger_operator.behaviours.report.event_recorder import (
    ENDPOINTS_MISMATCH,
    LEADER_CHANGED,
    QUORUM_LOST,
    QUORUM_RESTORED,
    News,
)
from dledger_operator.conditions import endpoints_synced, quorum_healthy
from dledger_operator.facts import LeaderChange
from dledger_operator.resources.event import NORMAL, WARNING

# A failover leaves the Service behind for a moment; that is no news.
MISMATCH_AGE_MIN: Final = timedelta(seconds=5)


def of_leader_change(change: LeaderChange) -> News:
    """A new leader."""
    before = f", after {change.from_member}" if change.from_member else ""
    return News(
        severity=NORMAL,
        reason=LEADER_CHANGED,
        message=f"{change.to_member} leads term {change.term}{before} ({change.reason})",
    )


class ConditionNews:
    """Remembers what was told, so that each change is told once."""

    def __init__(self) -> None:
        self._lost = False
        self._mismatched = False

    def of_conditions(
        self,
        before: Sequence[Mapping[str, Any]],
        after: Sequence[Mapping[str, Any]],
        now: datetime,
    ) -> list[News]:
        """Compare two lists of conditions."""
        return [*self._of_quorum(before, after), *self._of_endpoints(after, now)]

    def _of_quorum(
        self, before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
    ) -> list[News]:
        healthy = _find(after, quorum_healthy.TYPE)
        if healthy["status"] == "False":
            if _find(before, quorum_healthy.TYPE).get("status") != "True":
                return []
            self._lost = True
            return [News(severity=WARNING, reason=QUORUM_LOST, message=healthy["message"])]
        if not self._lost:
            return []
        self._lost = False
        return [News(severity=NORMAL, reason=QUORUM_RESTORED, message=healthy["message"])]

    def _of_endpoints(self, after: Sequence[Mapping[str, Any]], now: datetime) -> list[News]:
        synced = _find(after, endpoints_synced.TYPE)
        if synced["status"] == "True" or synced["reason"] == "NoLeader":
            self._mismatched = False
            return []
        age = now - datetime.fromisoformat(synced["lastTransitionTime"])
        if self._mismatched or age < MISMATCH_AGE_MIN:
            return []
        self._mismatched = True
        return [News(severity=WARNING, reason=ENDPOINTS_MISMATCH, message=synced["message"])]


def _find(conditions: Sequence[Mapping[str, Any]], kind: str) -> Mapping[str, Any]:
    return next((each for each in conditions if each.get("type") == kind), {})
