"""Carries out an object in steps, each decided from its status and the cluster's state."""

import abc
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from dledger_operator import names, reasons
from dledger_operator.api_objects import Manifest
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.lasting_failure import LastingFailure
from dledger_operator.behaviors.one_off.order import earlier
from dledger_operator.behaviors.one_off.phase_times import PhaseTimes
from dledger_operator.behaviors.one_off.steps import TIMED_OUT, Begin, End
from dledger_operator.behaviors.one_off.worker import OneOffWorker
from dledger_operator.behaviors.report.event_recorder import EventNote
from dledger_operator.behaviors.steps import Wait
from dledger_operator.clients.errors import KubeError
from dledger_operator.conditions.condition import Judgment
from dledger_operator.problem import Problem
from dledger_operator.resources.event import NORMAL, WARNING
from dledger_operator.spec.spec_reader import InvalidSpecError

logger = logging.getLogger(__name__)

PENDING: Final = "Pending"
RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
ENDED_PHASES: Final = (SUCCEEDED, FAILED)
REQUEST_FAILS: Final = "RequestFails"


class Request(Protocol):
    """The validated spec of an object that is carried out in steps."""

    @property
    def ttl_after_finished_s(self) -> float:
        """How long the object is kept after its end."""

    @property
    def timeout_s(self) -> float:
        """How long the work may take from its recorded beginning."""


R = TypeVar("R", bound=Request)


class SteppedWorker(OneOffWorker, Generic[R]):
    """Works on an object in steps; deletes it `ttlAfterFinished` after its end."""

    ended_phases = ENDED_PHASES
    finished_event: ClassVar[str]
    """The reason of the Event about the end."""
    recorded: ClassVar[tuple[str, ...]]
    """The fields of the status that later steps read; `startedAt` is always one."""
    phases: ClassVar[Mapping[str, tuple[str, str]]]
    """The two moments of each phase, by its field of the status. The first moment of all is
    `begun`, and the last one of a success is `ended`.
    """
    look_again_s: ClassVar[float]
    """How soon the operator looks again while the work is under way."""

    def __init__(
        self, body: Mapping[str, Any], context: Context, on_gone: Callable[[], None]
    ) -> None:
        """Create a worker; `on_gone` is called when the object no longer exists."""
        super().__init__(body, context, on_gone)
        self._times = PhaseTimes(context.clock, self.phases)
        self._failure = LastingFailure()

    @abc.abstractmethod
    def _parse(self, body: Mapping[str, Any]) -> R:
        """Parse an object. Raises InvalidSpecError, which names the invalid key."""

    @abc.abstractmethod
    async def _advance(self, request: R, first: str) -> float | None:
        """Take at most one step of an object that has not ended; `first` is the name of an
        object that goes first, or empty. Return the seconds until the next run.
        """

    @abc.abstractmethod
    def _count(self, end: End) -> None:
        """Count the end in the metrics."""

    def _is_out_of_the_way(self, first: Mapping[str, Any]) -> bool:
        """Return whether an earlier object about the same group lets this one begin."""
        return (first.get("status") or {}).get("phase") in self.ended_phases

    def _ttl_s(self) -> float | None:
        try:
            return self._parse(self._body).ttl_after_finished_s
        except InvalidSpecError:
            return None

    async def _run_once(self) -> float | None:
        """Take at most one step, after reading what another operator may have recorded."""
        if self.ended():
            await self._set_back_times()
            if not self._is_due():
                return None
        existing = await self._context.api.custom_objects(self.kind, self.namespace)
        body = next((each for each in existing if each["metadata"]["uid"] == self.uid), None)
        if body is None:
            self._leave()
            return None
        self._body, self._status = body, body.get("status") or {}
        if self.ended():
            return await self._delete()
        await self._set_back_times()
        try:
            request = self._parse(body)
        except InvalidSpecError as error:
            await self._end(End(succeeded=False, reason=reasons.INVALID_SPEC, message=str(error)))
            return None
        try:
            again_s = await self._advance(request, self._first(existing))
        except (KubeError, InvalidSpecError) as error:
            await self._tell_failure(request, error)
            raise
        self._failure.end()
        return again_s

    async def _tell_failure(self, request: R, error: KubeError | InvalidSpecError) -> None:
        """Show why the work is stuck, and end it at the timeout: other objects may wait for it."""
        if not self._failure.failed(self._context.clock()) or not self._begun:
            return
        if self._elapsed_s() < request.timeout_s:
            reason = reasons.GROUP_INVALID if isinstance(error, InvalidSpecError) else REQUEST_FAILS
            await self._show(Wait(Problem(reason=reason, message=str(error))))
            return
        message = f"it did not end within {request.timeout_s:g} s, and requests fail: {error}"
        await self._end(End(succeeded=False, reason=TIMED_OUT, message=message))

    def _first(self, existing: Sequence[Mapping[str, Any]]) -> str:
        return earlier(self._body, existing, self._is_out_of_the_way)

    @property
    def _begun(self) -> bool:
        """Whether the beginning is recorded."""
        return "startedAt" in self._status

    def _elapsed_s(self) -> float:
        """Return the time since the recorded beginning."""
        begun = self._recorded("startedAt")
        return (self._context.now() - begun).total_seconds() if begun else 0.0

    async def _take(self, step: Begin | Wait | End) -> float | None:
        """Record a step that changes nothing but the status.

        While an earlier object goes first, an event about that one wakes this one. Many may wait.
        """
        if isinstance(step, End):
            if step.succeeded:
                self._times.note("ended")
            await self._end(step)
            return 0.0
        if isinstance(step, Begin):
            self._times.note("begun")
            started_at = names.timestamp(self._context.now())
            await self._record(RUNNING, step.message, startedAt=started_at)
            return 0.0
        await self._show(step)
        return self.look_again_s if self._begun else None

    async def _show(self, wait: Wait) -> None:
        """Write what the object waits for."""
        judgment = Judgment(holds=False, reason=wait.reason, message=wait.message)
        await self._write(self._kept(RUNNING if self._begun else PENDING, judgment))

    async def _record(self, reason: str, message: str, **facts: Any) -> None:
        """Write what a later step must know."""
        judgment = Judgment(holds=False, reason=reason, message=message)
        await self._write(self._kept(RUNNING, judgment) | facts)

    def _kept(self, phase: str, judgment: Judgment) -> Manifest:
        """Return a status that keeps what was recorded."""
        keys = ("startedAt", *self.recorded)
        kept = {key: self._status[key] for key in keys if key in self._status}
        return {**kept, **self._built(phase, judgment)}

    async def _end(self, end: End) -> None:
        phase = SUCCEEDED if end.succeeded else FAILED
        judgment = Judgment(holds=end.succeeded, reason=end.reason, message=end.message)
        status = self._kept(phase, judgment) | self._times.to_json() | dict(end.result)
        status["finishedAt"] = names.timestamp(self._context.now())
        if not await self._write(status):
            return
        self._count(end)
        where = f"{self.behavior} {self.namespace}/{self.name}"
        logger.info("%s: %s: %s", where, phase, end.message)
        severity = NORMAL if end.succeeded else WARNING
        note = EventNote(severity=severity, reason=self.finished_event, message=end.message)
        await self._context.events.record(self.kind, self._body, note)
