"""Keeps a group's leadership where it should be: off nodes that are being emptied, and with the
preferred leader. Each step is decided by what the members answer right before it.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_operator import names, reasons
from dledger_operator.api_objects import PodView
from dledger_operator.behaviors.context import Context
from dledger_operator.behaviors.group_snapshot import GroupSnapshot
from dledger_operator.behaviors.handover.candidates import Candidates, find_candidates
from dledger_operator.behaviors.handover.placement import (
    NODES_UNKNOWN,
    SETTLING,
    Decision,
    Move,
    PlacementState,
    Stay,
    able_members,
    decide,
    find_places,
)
from dledger_operator.behaviors.handover.settling import recent_losses
from dledger_operator.behaviors.leader.member_pods import is_member
from dledger_operator.behaviors.loops import Lasting, backoff_s
from dledger_operator.behaviors.members import observe
from dledger_operator.behaviors.report.event_recorder import EventNote
from dledger_operator.behaviors.report.number_changes import without_numbers
from dledger_operator.behaviors.steps import Wait
from dledger_operator.clients.errors import MemberSilentError
from dledger_operator.observed_state import Leader, Placement
from dledger_operator.problem import Problem
from dledger_operator.resources.event import NORMAL
from dledger_operator.spec.group import Group

logger = logging.getLogger(__name__)

# How soon the operator looks again while the leader should be another member.
LOOK_AGAIN_S: Final = 1.0
SETTLING_S_MAX: Final = 5.0
# A leader takes no appends while it hands over, so a transfer that fails is not repeated at once.
RETRY_S_MIN: Final = 1.0
RETRY_S_MAX: Final = 60.0


class AbleTimes:
    """Since when members have been able to lead, by the operator's own clock."""

    def __init__(self) -> None:
        self._since_s: dict[str, tuple[object, float]] = {}

    def forget(self, member_id: str) -> None:
        """Restart the time of a member when it is next observed."""
        self._since_s.pop(member_id, None)

    def forget_all(self) -> None:
        """Restart the time of every member when it is next observed."""
        self._since_s.clear()

    def observe(
        self, pods: Sequence[PodView], able: frozenset[str], now_s: float
    ) -> dict[str, float]:
        """Record the members that are able to lead at `now_s`. Return for how many seconds each has
        been, by member id. The time restarts if the pod was recreated or was not ready meanwhile.
        """
        since_s = {}
        for pod in pods:
            if pod.member_id in able:
                life = (pod.uid, pod.ready_since)
                before = self._since_s.get(pod.member_id)
                since_s[pod.member_id] = before if before and before[0] == life else (life, now_s)
        self._since_s = since_s
        return {member: now_s - began_s for member, (_, began_s) in since_s.items()}


@dataclass(frozen=True, slots=True)
class _Refusal:
    """That a leader did not hand over to a member."""

    failures: int
    """How often in a row."""
    retry_at_s: float
    why: str


def _did_not_hand_over(move: Move, why: str) -> Wait:
    message = f"{move.message}; it did not hand over to {move.to}: {why}"
    return Wait(Problem(reason=reasons.TRANSFER_REFUSED, message=message))


class Placer:
    """Keeps the leadership of one group where it should be."""

    def __init__(
        self,
        context: Context,
        snapshot: GroupSnapshot,
        on_event: Callable[[EventNote], None],
        on_change: Callable[[], None],
    ) -> None:
        """Create a placer; `on_event` is called with every Event to record, `on_change` after a
        change of the snapshot's placement.
        """
        self._context = context
        self._snapshot = snapshot
        self._on_event = on_event
        self._on_change = on_change
        self._requests = context.authorized_requests(snapshot.namespace, snapshot.name)
        self._times = AbleTimes()
        self._lasting = Lasting(context.clock)
        self._refusals: dict[tuple[Leader, str], _Refusal] = {}
        """By leader and by the member that was to take over."""

    async def run_once(self) -> float | None:
        """Move the leadership if it should be elsewhere. Return the seconds until the next run;
        None if events suffice.

        Members are asked only if the leadership should move from the leader that was last seen.
        """
        snapshot, group = self._snapshot, self._snapshot.group
        if group is None or not snapshot.reconciled.generation:
            return None
        leader = snapshot.followed.leader
        seen = Candidates(leader=leader, members=(), membership_changing=False)
        decision = decide(self._state(group, snapshot.followed.pods, seen))
        if not isinstance(decision, Wait) or decision.reason in (reasons.NO_LEADER, NODES_UNKNOWN):
            if isinstance(decision, Stay):
                # Members are not asked now. A leader that stalls and loses an election is to settle
                # before it leads again, although its pod was ready all the time.
                self._times.forget_all()
                self._refusals.clear()
            self._note(decision)
            self._lasting.forget()
            return None
        pods = await self._pods(group)
        answers = await observe.statuses(self._context.member_http, pods, snapshot.is_stranger)
        candidates = find_candidates(
            pods, answers, staying=group.member_ids, rolling_out=snapshot.pods_to_replace
        )
        state = self._state(group, pods, candidates)
        able_s = self._times.observe(pods, able_members(state), self._context.clock())
        decision = decide(replace(state, able_s=able_s))
        if isinstance(decision, Move):
            decision = await self._hand_over(group, pods, decision)
        self._note(decision)
        return self._pause_s(group, pods, decision)

    def _pause_s(self, group: Group, pods: Sequence[PodView], decision: Decision) -> float:
        """Return how soon to look again while the leader should be another member.

        No event reports what a settling member does meanwhile, and its time may restart.
        """
        preferred, seen = group.preferred_leader, (type(decision), decision.reason)
        stable_s = preferred.stable_for_s / 10 if preferred else 0.0
        soon_s = min(SETTLING_S_MAX, max(LOOK_AGAIN_S, stable_s))
        if decision.reason == SETTLING:
            self._lasting.forget()
            return soon_s
        where = [(pod.uid, pod.node, pod.ready, pod.leaving) for pod in pods]
        lasting_s = self._lasting.pause_s((seen, without_numbers(decision.message), where))
        return max(soon_s, lasting_s)

    async def _pods(self, group: Group) -> Sequence[PodView]:
        api = self._context.api
        made = await api.stateful_set(group.namespace, names.stateful_set(group.name))
        listed = await api.member_pods(group.namespace, group.name)
        return [pod for pod in listed if made and is_member(pod, group.name, {made.uid})]

    def _state(
        self, group: Group, pods: Sequence[PodView], candidates: Candidates
    ) -> PlacementState:
        nodes = self._context.nodes
        return PlacementState(
            candidates=candidates,
            places=find_places(pods, nodes, group.preferred_leader),
            preference=group.preferred_leader,
            nodes_readable=nodes.readable,
            able_s={},
            refused=frozenset(
                to
                for (leader, to), each in self._refusals.items()
                if leader == candidates.leader and self._context.clock() < each.retry_at_s
            ),
            losses=recent_losses(self._snapshot.history.changes, self._context.now()),
            paused=group.paused,
            rolling=bool(self._snapshot.pods_to_replace),
            roll_halted=self._snapshot.roll_halt is not None,
            scaling=self._snapshot.is_scaling,
        )

    async def _hand_over(self, group: Group, pods: Sequence[PodView], move: Move) -> Decision:
        """Ask the leader to hand over, unless it refused a moment ago."""
        ips = {pod.member_id: pod.ip for pod in pods}
        leader, to = move.leader, move.to
        before = self._refusals.get((leader, to))
        if before and self._context.clock() < before.retry_at_s:
            return _did_not_hand_over(move, before.why)
        try:
            answer = await self._requests.transfer(
                ips.get(leader.member_id, ""),
                group.name,
                leader,
                to,
                identity=self._snapshot.identity,
            )
            refusal = "" if answer.code is DLedgerResponseCode.SUCCESS else answer.code.name
        except MemberSilentError as error:
            refusal = str(error)
        if refusal:
            failures = before.failures + 1 if before else 1
            pause_s = backoff_s(failures, RETRY_S_MIN, RETRY_S_MAX, self._context.random)
            known = {key: each for key, each in self._refusals.items() if key[0] == leader}
            refused = _Refusal(failures, self._context.clock() + pause_s, refusal)
            self._refusals = {**known, (leader, to): refused}
            return _did_not_hand_over(move, refusal)
        self._refusals.clear()
        self._times.forget(to)  # it settles again if it loses the leadership before the next look
        self._context.metrics.handovers.labels(move.reason).inc()
        message = f"{leader.member_id} transferred its leadership to {to}: {move.message}"
        logger.info("%s/%s: %s", group.namespace, group.name, message)
        self._on_event(EventNote(severity=NORMAL, reason=reasons.LEADERSHIP_MOVED, message=message))
        return move

    def _note(self, decision: Decision) -> None:
        found = Placement(
            holds=isinstance(decision, Stay), reason=decision.reason, message=decision.message
        )
        if found != self._snapshot.placement:
            self._snapshot.placement = found
            self._on_change()
