"""Records Events on custom resources; a repeated Event raises the count of the existing one."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

from dledger_operator.api_objects import Manifest
from dledger_operator.clients.errors import KubeError
from dledger_operator.resources import event

logger = logging.getLogger(__name__)

REMEMBERED_MAX: Final = 1000
OWN_EVENTS_MAX: Final = 10
"""How many Events of one object and reason may at once have a message of their own."""
OWN_EVENT_EVERY_S: Final = 60.0
"""How soon after that there may be a further one, in seconds."""
COMBINED: Final = "(combined from similar Events)"
"""The beginning of the message of the Event that further ones share."""
LEADER_CHANGED: Final = "LeaderChanged"
QUORUM_RESTORED: Final = "QuorumRestored"
ENDPOINTS_MISMATCH: Final = "EndpointsMismatch"
SEED_UNUSED: Final = "SeedUnused"
AUDIT_FINISHED: Final = "AuditFinished"


K = TypeVar("K")
V = TypeVar("V")


class EventApi(Protocol):
    """The API request of this behavior."""

    async def apply(self, manifest: Manifest) -> None:
        """Create or update an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventNote:
    """The content of an Event to record."""

    severity: str
    """`NORMAL` or `WARNING`, the Event's type."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _Allowance:
    """How many Events with a message of their own an object may get now, for one reason."""

    left: float
    at: datetime

    def refilled(self, now: datetime) -> "_Allowance":
        """Return the allowance, refilled for the time until `now`."""
        passed_s = max(0.0, (now - self.at).total_seconds())
        return _Allowance(min(OWN_EVENTS_MAX, self.left + passed_s / OWN_EVENT_EVERY_S), now)


class EventRecorder:
    """Records Events and counts repetitions of the same content about the same object.

    A group without a steady leader would get an Event object for each term. So after some different
    messages for one reason, further ones share one Event, which has the latest message. This is the
    rule of Kubernetes' own clients.
    """

    def __init__(self, api: EventApi, *, now: Callable[[], datetime]) -> None:
        self._api = api
        self._now = now
        self._recorded: OrderedDict[tuple[str, str, str], tuple[int, datetime]] = OrderedDict()
        self._allowances: OrderedDict[tuple[str, str], _Allowance] = OrderedDict()

    async def record(self, kind: str, body: Mapping[str, Any], note: EventNote) -> None:
        """Record an Event about `body`. A failure is only logged: Events are informational."""
        metadata = body["metadata"]
        about, now = (metadata["uid"], note.reason), self._now()
        allowance = self._allowances.get(about, _Allowance(OWN_EVENTS_MAX, now)).refilled(now)
        is_known = (*about, note.message) in self._recorded
        combined = not is_known and allowance.left < 1
        key = (*about, COMBINED if combined else note.message)
        count, first = self._recorded.get(key, (0, now))
        manifest = event.build(
            kind=kind,
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            severity=note.severity,
            reason=note.reason,
            message=f"{COMBINED} {note.message}" if combined else note.message,
            named_after=key[-1],
            count=count + 1,
            first=first,
            last=now,
        )
        try:
            await self._api.apply(manifest)
        except KubeError as error:
            logger.warning("could not record Event %s (%s): %s", note.reason, note.message, error)
            return
        _remember(self._recorded, key, (count + 1, first))
        spent = 0 if is_known or combined else 1
        _remember(self._allowances, about, replace(allowance, left=allowance.left - spent))


def _remember(known: OrderedDict[K, V], key: K, value: V) -> None:
    """Keep a value, and drop the least recent one if there are too many."""
    known[key] = value
    known.move_to_end(key)
    while len(known) > REMEMBERED_MAX:
        known.popitem(last=False)
