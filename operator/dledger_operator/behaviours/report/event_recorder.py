"""Records Events on custom resources; a repeated Event raises the count of the existing one."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from dledger_operator.api_objects import Manifest
from dledger_operator.clients.errors import KubeError
from dledger_operator.resources import event

logger = logging.getLogger(__name__)

REMEMBERED_MAX: Final = 1000
LEADER_CHANGED: Final = "LeaderChanged"
QUORUM_LOST: Final = "QuorumLost"
QUORUM_RESTORED: Final = "QuorumRestored"
ENDPOINTS_MISMATCH: Final = "EndpointsMismatch"
SEED_UNUSED: Final = "SeedUnused"
AUDIT_FINISHED: Final = "AuditFinished"


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


class EventRecorder:
    """Records Events and counts repetitions of the same content about the same object."""

    def __init__(self, api: EventApi, *, now: Callable[[], datetime]) -> None:
        self._api = api
        self._now = now
        self._recorded: OrderedDict[tuple[str, str, str], tuple[int, datetime]] = OrderedDict()

    async def record(self, kind: str, body: Mapping[str, Any], note: EventNote) -> None:
        """Record an Event about `body`. A failure is only logged: Events are informational."""
        metadata = body["metadata"]
        key = (metadata["uid"], note.reason, note.message)
        now = self._now()
        count, first = self._recorded.get(key, (0, now))
        manifest = event.build(
            kind=kind,
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            severity=note.severity,
            reason=note.reason,
            message=note.message,
            count=count + 1,
            first=first,
            last=now,
        )
        try:
            await self._api.apply(manifest)
        except KubeError as error:
            logger.warning("could not record Event %s (%s): %s", note.reason, note.message, error)
            return
        self._recorded[key] = (count + 1, first)
        self._recorded.move_to_end(key)
        while len(self._recorded) > REMEMBERED_MAX:
            self._recorded.popitem(last=False)
