"""Tells people what happened: Events on the custom resource, few and counted."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from dledger_operator.clients.errors import KubeError
from dledger_operator.resources import event
from dledger_operator.views import Manifest

logger = logging.getLogger(__name__)

REMEMBERED_MAX: Final = 1000
LEADER_CHANGED: Final = "LeaderChanged"
QUORUM_LOST: Final = "QuorumLost"
QUORUM_RESTORED: Final = "QuorumRestored"
ENDPOINTS_MISMATCH: Final = "EndpointsMismatch"
AUDIT_FINISHED: Final = "AuditFinished"


class EventApi(Protocol):
    """What this behaviour asks of the API server."""

    async def apply(self, manifest: Manifest) -> None:
        """Create or change an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """Something that a person should hear of."""

    severity: str
    reason: str
    message: str


class NewsDesk:
    """Posts Events; the same news about the same object again only raises a count."""

    def __init__(self, api: EventApi, *, now: Callable[[], datetime]) -> None:
        self._api = api
        self._now = now
        self._posted: OrderedDict[tuple[str, str, str], tuple[int, datetime]] = OrderedDict()

    async def post(self, kind: str, body: Mapping[str, Any], news: News) -> None:
        """Post one; that nobody hears of it is no reason to stop what else is going on."""
        metadata = body["metadata"]
        key = (metadata["uid"], news.reason, news.message)
        now = self._now()
        count, first = self._posted.get(key, (0, now))
        manifest = event.build(
            kind=kind,
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=metadata["uid"],
            severity=news.severity,
            reason=news.reason,
            message=news.message,
            count=count + 1,
            first=first,
            last=now,
        )
        try:
            await self._api.apply(manifest)
        except KubeError as error:
            logger.warning("an Event was lost (%s: %s): %s", news.reason, news.message, error)
            return
        self._posted[key] = (count + 1, first)
        self._posted.move_to_end(key)
        while len(self._posted) > REMEMBERED_MAX:
            self._posted.popitem(last=False)
