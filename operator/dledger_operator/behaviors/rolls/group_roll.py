"""Rolls a group to what its spec asks for, as far as the group's snapshot permits it."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dledger_formats.http.status import NodeStatus
from dledger_operator import reasons
from dledger_operator.api_objects import PodView
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.group_snapshot import GroupSnapshot
from dledger_operator.behaviors.loops import LASTING_S_MAX
from dledger_operator.behaviors.members import observe
from dledger_operator.behaviors.report.event_recorder import EventNote
from dledger_operator.behaviors.rolls.permission import (
    WAITING_FOR_WINDOW,
    Cause,
    approved_revision,
    closed_window,
)
from dledger_operator.behaviors.rolls.roll import REMOVAL_REFUSED, Roller
from dledger_operator.behaviors.rolls.roll_or_scale import scaling_goes_first
from dledger_operator.behaviors.rolls.roll_steps import ROLL_HALTED
from dledger_operator.conditions import progressing
from dledger_operator.problem import Problem

HALTS: Final = (ROLL_HALTED, reasons.STALLED, REMOVAL_REFUSED, WAITING_FOR_WINDOW)
"""Reasons for which a roll takes no step until somebody acts, or its window opens."""


class GroupRoll:
    """The roll of one group."""

    def __init__(
        self, context: Context, snapshot: GroupSnapshot, on_event: Callable[[EventNote], None]
    ) -> None:
        """Create a roll; `on_event` is called with every Event to record."""
        self._context = context
        self._snapshot = snapshot
        self._has_begun = False
        self._roller = Roller(
            context.api,
            context.authorized_requests(snapshot.namespace, snapshot.name),
            ask=self.ask,
            why_emptied=context.nodes.why_emptied,
            clock=context.clock,
            random=context.random,
            on_event=on_event,
        )

    @property
    def problem(self) -> Problem | None:
        """What the next step waits for."""
        return self._roller.problem

    async def ask(self, pods: Sequence[PodView]) -> dict[str, NodeStatus]:
        """Ask members for their status, by pod uid, without strangers."""
        http, snapshot = self._context.member_http, self._snapshot
        return await observe.statuses(http, pods, snapshot.is_stranger)

    async def run_once(
        self, body: Mapping[str, Any], led: bool, scaling_problem: Problem | None
    ) -> float | None:
        """Take at most one step, unless the spec of the object `body` may not be rolled out yet.

        Returns the seconds until the next run; None if nothing is left to do.
        """
        again_s = await self._take_step(body, led, scaling_problem)
        self._snapshot.roll_halt = self._halt()
        return again_s

    def _halt(self) -> Problem | None:
        """Return why no pod is replaced until somebody acts or a window opens, else None.

        A revision that is held stops a roll in the middle, too.
        """
        snapshot, problem = self._snapshot, self.problem
        if not snapshot.pods_to_replace:
            return None
        held = snapshot.reconciled.held
        if held and held.cause is Cause.SPEC:
            return held.problem
        return problem if problem and problem.reason in HALTS else snapshot.reconciled.problem

    async def _take_step(
        self, body: Mapping[str, Any], led: bool, scaling_problem: Problem | None
    ) -> float | None:
        snapshot, approved = self._snapshot, approved_revision(body)
        wanted = snapshot.roll_target(body["metadata"].get("generation", 1))
        if snapshot.group is None or wanted is None or snapshot.hibernates:
            self._roller.forget()
            return None
        if not self._has_begun:
            self._has_begun = True
            if _was_settled(body):
                self._roller.take_as_proven(wanted)
        now, window = self._context.now(), snapshot.group.update_window
        closed = closed_window(snapshot.group, wanted, approved=approved, now=now)
        opens_s = (window.opens_at(now) - now).total_seconds() if closed and window else math.inf
        # The roller checks this as well; here it costs no request while the window is closed.
        if closed and led and any(pod.revision != wanted for pod in snapshot.followed.pods):
            self._roller.wait(closed)
            return min(LASTING_S_MAX, opens_s)
        again_s = await self._roller.run_once(
            snapshot.group,
            wanted,
            snapshot.membership,
            identity=snapshot.identity,
            led=led,
            scaling=snapshot.is_scaling and scaling_goes_first(scaling_problem),
            begins=snapshot.is_founded_now and not led,
            closed=closed,
            failures=snapshot.failures,
        )
        return again_s and min(again_s, opens_s)


def _was_settled(body: Mapping[str, Any]) -> bool:
    """Return whether an earlier operator has reported that nothing of the group was in progress."""
    conditions = (body.get("status") or {}).get("conditions") or []
    return any(
        one.get("type") == progressing.TYPE and one.get("status") == "False" for one in conditions
    )
