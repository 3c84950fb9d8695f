"""Carries out one one-off object: works on it until it has ended, maintains its status, and deletes
it when its time to live is over.

Each step is decided from the object's status and from what is found in the cluster, never from
memory alone, so another operator can continue at every step.
"""

import abc
import logging
import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar, Final

from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.loops import Pace, Wake, repeat
from dledger_operator.behaviors.one_off.order import group_of
from dledger_operator.behaviors.one_off.status import status_of
from dledger_operator.behaviors.report.event_recorder import EventNote
from dledger_operator.behaviors.report.number_changes import (
    NUMBERS_ONLY_S_MIN,
    differ_in_numbers_only,
)
from dledger_operator.clients.errors import NotFoundError, RefusedError
from dledger_operator.conditions.condition import Judgment
from dledger_operator.resources.event import WARNING

logger = logging.getLogger(__name__)

DELETION_REFUSED: Final = "DeletionRefused"
DELETE_AGAIN_S: Final = 300.0
"""How soon a deletion that the API server has refused is tried again."""
_TIMES: Final = ("startedAt", "finishedAt")
"""The fields of a status from which a timeout, or a time to live, counts."""


class OneOffWorker(abc.ABC):
    """Works on one object until nothing is left to do."""

    kind: ClassVar[str]
    """The object's kind."""
    behavior: ClassVar[str]
    """The name of this behavior in metrics and log lines."""
    pace: ClassVar[Pace]
    ended_phases: ClassVar[tuple[str, ...]]
    """The phases in which a status is final."""

    def __init__(
        self, body: Mapping[str, Any], context: Context, on_gone: Callable[[], None]
    ) -> None:
        """Create a worker; `on_gone` is called when the object no longer exists."""
        self.uid: str = body["metadata"]["uid"]
        self.namespace: str = body["metadata"]["namespace"]
        self.name: str = body["metadata"]["name"]
        self.group_name = group_of(body)
        self._body = body
        self._status: Mapping[str, Any] = body.get("status") or {}
        self._context = context
        self._on_gone = on_gone
        self._wake = Wake()
        self._gone = False
        self._written_s = -math.inf
        self._refusal = ""
        """Why the object could not be deleted; empty if nothing was refused."""

    async def run(self) -> None:
        """Work on the object until nothing is left to do."""
        await repeat(
            self._run_once,
            what=f"{self.behavior} {self.namespace}/{self.name}",
            wake=self._wake,
            pace=self.pace,
            random=self._context.random,
            on_failure=partial(self._context.count_failure, self.behavior),
            until=self.done,
        )

    def ended(self) -> bool:
        """Return whether the status is final."""
        return self._status.get("phase") in self.ended_phases

    def done(self) -> bool:
        """Return whether nothing is left to do. An object with a time to live must be deleted."""
        return self._gone or (self.ended() and self._due_at() is None)

    def changed(self, body: Mapping[str, Any]) -> None:
        """Store a newer version of the object; its spec is immutable."""
        self._body = body

    def wake(self) -> None:
        """Run now, because something that the object waits for has changed."""
        self._wake.set()

    @abc.abstractmethod
    async def _run_once(self) -> float | None:
        """Take at most one step. Return the seconds until the next run, if that is sooner than
        the pace.
        """

    def _ttl_s(self) -> float | None:
        """Return how long the object is kept after its end; None if something else deletes it."""
        return None

    def _due_at(self) -> datetime | None:
        """Return when the object is to be deleted; None if it is kept.

        An object whose status does not say when it ended is kept.
        """
        ttl_s, finished_at = self._ttl_s(), self._recorded("finishedAt")
        if ttl_s is None or finished_at is None:
            return None
        return finished_at + timedelta(seconds=ttl_s)

    def _recorded(self, key: str) -> datetime | None:
        """Return a time of the status; None if there is none, or no valid one.

        The clock of the operator that recorded it may have been wrong. So a time before the
        object's creation counts as the creation, which the API server has recorded.
        """
        moment = _time(self._status.get(key))
        created = _time(self._body["metadata"].get("creationTimestamp"))
        return max(moment, created) if moment and created else moment

    async def _set_back_times(self) -> None:
        """Replace times in the future, which an operator whose clock was ahead has recorded: what
        waits for them would wait too long.
        """
        now = self._context.now()
        ahead = [key for key in _TIMES if (moment := self._recorded(key)) and moment > now]
        if ahead:
            logger.warning(
                "%s %s/%s: %s of its status is in the future, and becomes the present time",
                self.behavior, self.namespace, self.name, " and ".join(ahead),
            )  # fmt: skip
            await self._write({**self._status, **dict.fromkeys(ahead, names.timestamp(now))})

    def _is_due(self) -> bool:
        """Return whether an object that has ended is to be deleted now."""
        due_at = self._due_at()
        return due_at is not None and self._context.now() >= due_at

    def _built(self, phase: str, judgment: Judgment) -> Manifest:
        """Return a status with the result so far, and nothing else."""
        return status_of(
            phase,
            judgment,
            previous=self._status,
            now=self._context.now(),
            generation=self._body["metadata"].get("generation", 1),
        )

    async def _write(self, status: Manifest) -> bool:
        """Write the status if it differs; if only numbers differ, at intervals. Return False if the
        object no longer exists.
        """
        now_s = self._context.clock()
        is_recent = now_s - self._written_s < NUMBERS_ONLY_S_MIN
        if status == self._status or (is_recent and differ_in_numbers_only(status, self._status)):
            return True
        try:
            await self._context.api.apply_status(self.kind, self._body, status)
        except NotFoundError:
            self._leave()
            return False
        self._status, self._written_s = status, now_s
        return True

    async def _delete(self) -> float | None:
        """Delete the object, whose time to live is over. Return the seconds until the next attempt
        if the API server refuses the deletion.
        """
        try:
            await self._context.api.delete_custom_object(self.kind, self._body)
        except NotFoundError:
            logger.info("%s %s/%s is gone already", self.behavior, self.namespace, self.name)
        except RefusedError as error:
            await self._tell_refusal(str(error))
            return DELETE_AGAIN_S
        self._gone = True
        return None

    async def _tell_refusal(self, message: str) -> None:
        """Tell why the object stays, once for each reason."""
        if message == self._refusal:
            return
        self._refusal = message
        logger.warning("%s %s/%s: %s", self.behavior, self.namespace, self.name, message)
        note = EventNote(severity=WARNING, reason=DELETION_REFUSED, message=message)
        await self._context.events.record(self.kind, self._body, note)

    def _leave(self) -> None:
        """End the work, because the object no longer exists."""
        self._gone = True
        self._on_gone()


def _time(recorded: object) -> datetime | None:
    """Read a time with its zone; None if it is missing, invalid or without a zone."""
    try:
        moment = datetime.fromisoformat(str(recorded))
    except ValueError:
        return None
    return moment if moment.tzinfo else None
