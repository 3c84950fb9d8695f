"""Reports one group: its status, its metrics and its Events."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from dledger_operator import names
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.leader.leader_history import LeaderHistory
from dledger_operator.behaviors.report.audit_events import audit_events
from dledger_operator.behaviors.report.event_recorder import EventNote
from dledger_operator.behaviors.report.group_events import EndpointEvents
from dledger_operator.behaviors.report.member_events import member_events
from dledger_operator.behaviors.report.quorum_events import quorum_events
from dledger_operator.behaviors.report.status import StatusReporter, build_status
from dledger_operator.conditions import (
    degraded,
    endpoints_synced,
    progressing,
    quorum_healthy,
    ready,
)
from dledger_operator.observed_state import ObservedGroup

logger = logging.getLogger(__name__)

PENDING_EVENTS_MAX: Final = 100
"""How many Events wait for a status; the oldest are left out while it cannot be written."""
# After its start, the operator waits this long for a leader before it reports that there is none.
GATHERING_S_MAX: Final = 5.0
CALM_S: Final = 60.0
_CALM: Final = {
    ready.TYPE: "True",
    quorum_healthy.TYPE: "True",
    endpoints_synced.TYPE: "True",
    degraded.TYPE: "False",
    progressing.TYPE: "False",
}


class GroupReporter:
    """Reports one group. The Events that others add are recorded after the next status."""

    def __init__(
        self, context: Context, status: Mapping[str, Any], on_event: Callable[[], None]
    ) -> None:
        """Create a reporter; `status` is the group's status when the operator first saw it.
        `on_event` is called when `report` has an Event to record.
        """
        self._context = context
        self._on_event = on_event
        self._started_s = context.clock()
        self._is_new = not status
        self._writer = StatusReporter(context.api, clock=context.clock)
        self._endpoint_events = EndpointEvents()
        self._pending_events: deque[EventNote] = deque(maxlen=PENDING_EVENTS_MAX)
        self._left_out = 0
        """How many Events were left out since the last status."""

    def add_event(self, note: EventNote) -> None:
        """Record an Event after the next status, which is then due."""
        self._add([note])
        self._on_event()

    def status(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the group's current status."""
        return self._writer.written or body.get("status") or {}

    def may_replace_status(self, *, complete: bool) -> bool:
        """Return whether enough is known to replace the group's status.

        A status from before the operator's start must not be replaced by an incomplete one. A new
        group has no status to preserve.
        """
        waited_s = self._context.clock() - self._started_s
        return self._is_new or complete or waited_s > GATHERING_S_MAX

    async def report(
        self,
        body: Mapping[str, Any],
        observed: ObservedGroup,
        history: LeaderHistory,
        generation: int,
    ) -> float | None:
        """Write the status if a write is due, then the Events. Return the seconds until the next
        report if nothing changes; None for the usual interval.

        Raises NotFoundError if the group is gone.
        """
        now, previous = self._context.now(), self.status(body)
        status = build_status(observed, history, generation=generation, previous=previous, now=now)
        self._add(self._endpoint_events.on_report(status["conditions"], now))
        if observed.pods_known:  # what is not known must raise no alert
            self._context.metrics.update_group(observed, status["conditions"])
        await self._writer.report(body, status)
        # A status that could not be written must not count as the previous one.
        self._add(quorum_events(previous, status))
        self._add(audit_events(previous, status))
        self._add(member_events(previous.get("members") or [], status["members"]))
        self._log_left_out(observed)
        while self._pending_events:
            note = self._pending_events.popleft()
            await self._context.events.record(names.GROUP_KIND, body, note)
        return CALM_S if is_calm(status["conditions"]) else None

    def _add(self, notes: Iterable[EventNote]) -> None:
        for note in notes:
            self._left_out += len(self._pending_events) == PENDING_EVENTS_MAX
            self._pending_events.append(note)

    def _log_left_out(self, observed: ObservedGroup) -> None:
        if self._left_out:
            logger.warning(
                "%s/%s: left out the first %d Events, since the status could not be written",
                observed.namespace, observed.name, self._left_out,
            )  # fmt: skip
        self._left_out = 0


def is_calm(conditions: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether nothing is in progress, so that the status does not change with time."""
    statuses = {each["type"]: each["status"] for each in conditions}
    return all(statuses.get(kind) == wanted for kind, wanted in _CALM.items())
