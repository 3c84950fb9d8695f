"""Tests one group with canaries, as a client that knows only the master Service.

One test: append a canary, as often as needed until one is acknowledged or the time is up; read it
back; and read the one before it again, which must still be there however often the leader changed.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_operator.behaviors.canary.readback import Acknowledged, Readback, judge
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.group_snapshot import GroupSnapshot
from dledger_operator.behaviors.report.event_recorder import EventNote
from dledger_operator.canary_metrics import Operation, Outcome
from dledger_operator.clients.errors import CanaryUnsupportedError, MemberSilentError
from dledger_operator.resources.event import WARNING

logger = logging.getLogger(__name__)

ACKNOWLEDGEMENT_LOST: Final = "AcknowledgementLost"
CANARY_UNSUPPORTED: Final = "CanaryUnsupported"
TEST_S_MAX: Final = 5.0
"""A test fails if no canary is acknowledged and read back within this time."""
RETRY_S: Final = 0.1
_KEPT: Final = (Readback.THERE, Readback.REMOVED)
_OUTCOMES: Final = {Readback.UNKNOWN: Outcome.NOT_READ, Readback.LOST: Outcome.LOST}


class Canary:
    """The tests of one group."""

    def __init__(
        self,
        context: Context,
        snapshot: GroupSnapshot,
        on_event: Callable[[EventNote], None],
        on_write: Callable[[int], None],
    ) -> None:
        """Create the tests; `on_write` is called with the term of each acknowledged canary."""
        self._context = context
        self._snapshot = snapshot
        self._on_event = on_event
        self._on_write = on_write
        self._metrics = context.metrics.canaries.of(snapshot.namespace, snapshot.name)
        self._last: Acknowledged | None = None
        self._identity = ""
        self._was_unsupported = False

    async def run_once(self) -> float | None:
        """Test the group if its spec asks for it. Return the seconds until the next test; None if
        the spec asks for no tests.
        """
        snapshot = self._snapshot
        spec = snapshot.group.canary if snapshot.group else None
        if spec is None:
            self._metrics.forget()
            self._last = None
            return None
        if snapshot.group is not None and snapshot.group.hibernate:
            self._metrics.forget_availability()
            return spec.interval_s
        if snapshot.history.leader is None:
            return spec.interval_s
        if snapshot.identity != self._identity:
            self._identity, self._last = snapshot.identity, None
        began_s = self._context.clock()
        try:
            await self._test(began_s)
        except CanaryUnsupportedError as error:
            self._metrics.count(Outcome.UNSUPPORTED)
            self._say_unsupported(str(error))
        else:
            self._was_unsupported = False
        return max(RETRY_S, spec.interval_s - (self._context.clock() - began_s))

    async def _test(self, began_s: float) -> None:
        acknowledged = await self._append(began_s)
        if acknowledged is None:
            self._metrics.count(Outcome.NOT_ACKNOWLEDGED)
            return
        before, self._last = self._last, acknowledged
        self._metrics.observe(Operation.APPEND, self._context.clock() - began_s)
        self._on_write(acknowledged.term)
        read_s = self._context.clock()
        found = await self._read(acknowledged, began_s + TEST_S_MAX)
        if found in _KEPT:
            self._metrics.observe(Operation.READ, self._context.clock() - read_s)
            if before is not None:
                found = await self._read(before, began_s + TEST_S_MAX)
        self._metrics.count(_OUTCOMES.get(found, Outcome.ACKNOWLEDGED))

    async def _append(self, began_s: float) -> Acknowledged | None:
        """Append until a canary is acknowledged; return None if none is in time."""
        namespace, name = self._snapshot.namespace, self._snapshot.name
        problem = ""
        while self._context.clock() < began_s + TEST_S_MAX:
            try:
                answer = await self._context.canaries.append(namespace, name, self._identity)
            except MemberSilentError as error:
                problem = str(error)
            else:
                if answer.code is DLedgerResponseCode.SUCCESS:
                    return Acknowledged(answer.index, answer.term)
                problem = f"{answer.leader_id or 'a member'} answered {answer.code.name}"
            await asyncio.sleep(RETRY_S)
        logger.warning(
            "%s/%s: no canary was acknowledged within %.0f s: %s",
            namespace, name, TEST_S_MAX, problem,
        )  # fmt: skip
        return None

    async def _read(self, canary: Acknowledged, until_s: float) -> Readback:
        """Read a canary back until the answer is not a refusal; report a lost canary."""
        namespace, name = self._snapshot.namespace, self._snapshot.name
        while self._context.clock() < until_s:
            try:
                found = judge(
                    canary, await self._context.canaries.read(namespace, name, canary.index)
                )
            except MemberSilentError as error:
                logger.debug("%s/%s: a canary was not read: %s", namespace, name, error)
                found = Readback.UNKNOWN
            if found is Readback.LOST:
                self._say_lost(canary)
            if found is not Readback.UNKNOWN:
                return found
            await asyncio.sleep(RETRY_S)
        return Readback.UNKNOWN

    def _say_lost(self, canary: Acknowledged) -> None:
        """Report that an acknowledged entry is gone, and do not look for it again."""
        message = (
            f"the canary that was acknowledged as entry {canary.index} of term {canary.term} is no "
            "longer in the leader's log: an acknowledged append was lost. Audit the group"
        )
        logger.error("%s/%s: %s", self._snapshot.namespace, self._snapshot.name, message)
        self._metrics.count_lost()
        self._on_event(EventNote(severity=WARNING, reason=ACKNOWLEDGEMENT_LOST, message=message))
        self._last = None

    def _say_unsupported(self, problem: str) -> None:
        if self._was_unsupported:
            return
        self._was_unsupported = True
        message = f"the group cannot be tested with canaries: {problem}; use a newer image"
        logger.warning("%s/%s: %s", self._snapshot.namespace, self._snapshot.name, message)
        self._on_event(EventNote(severity=WARNING, reason=CANARY_UNSUPPORTED, message=message))
