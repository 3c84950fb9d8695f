"""Rolls one group, step by step. Each step is decided by what members answer right before it."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Final, Protocol

from dledger_formats.http.status import NodeStatus
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_operator import names, reasons
from dledger_operator.api_objects import (
    CreationFailure,
    PodView,
    StatefulSetView,
    VolumeClaimView,
)
from dledger_operator.behaviors.leader.member_pods import is_member
from dledger_operator.behaviors.loops import Lasting, backoff_s
from dledger_operator.behaviors.members.leader_client import TransferClient
from dledger_operator.behaviors.refusals import Refusals
from dledger_operator.behaviors.report.event_recorder import EventNote
from dledger_operator.behaviors.report.number_changes import without_numbers
from dledger_operator.behaviors.rolls.pods_to_roll import refused_pods, roll_state
from dledger_operator.behaviors.rolls.readiness import Awaited, LastProblems, Readiness
from dledger_operator.behaviors.rolls.roll_state import LEADERLESS_S_MIN, RollState
from dledger_operator.behaviors.rolls.roll_steps import (
    ELECTIONS_MIN,
    ROLL_HALTED,
    ReplacePod,
    next_step,
    unproven,
)
from dledger_operator.behaviors.steps import HandOver, Wait
from dledger_operator.clients.errors import (
    ConflictError,
    EvictionRefusedError,
    MemberSilentError,
    NotFoundError,
    RefusedError,
)
from dledger_operator.observed_state import Leader, Membership
from dledger_operator.problem import Problem
from dledger_operator.resources.event import NORMAL, WARNING
from dledger_operator.spec.group import Group
from dledger_operator.spec.revision import Revision

logger = logging.getLogger(__name__)

ROLL_COMPLETED: Final = "RollCompleted"
REMOVAL_REFUSED: Final = "RemovalRefused"
RETRY_S_MIN: Final = 1.0
RETRY_S_MAX: Final = 30.0

Ask = Callable[[Sequence[PodView]], Awaitable[Mapping[str, NodeStatus]]]


class RollApi(Protocol):
    """The API requests of this behavior."""

    async def stateful_set(self, namespace: str, name: str) -> StatefulSetView | None:
        """Get a group's StatefulSet; None if it does not exist."""

    async def member_pods(self, namespace: str, group: str) -> list[PodView]:
        """List the pods with a group's label from one LIST."""

    async def volume_claims(self, namespace: str, group: str) -> list[VolumeClaimView]:
        """List the volume claims with a group's label."""

    async def replace_pod(self, pod: PodView) -> None:
        """Remove a pod. Raises ConflictError if it has changed since it was read,
        EvictionRefusedError if a disruption budget keeps it.
        """


class Roller:
    """Rolls one group. It keeps state only for reporting and for the backoff of transfers."""

    def __init__(
        self,
        api: RollApi,
        requests: TransferClient,
        *,
        ask: Ask,
        why_emptied: Callable[[PodView], str],
        clock: Callable[[], float],
        random: Random,
        on_event: Callable[[EventNote], None],
    ) -> None:
        """Create a roller. `ask` asks members for their status, by pod uid; `why_emptied` returns
        why a pod's node is being emptied, if it is; `on_event` is called with every Event to
        record.
        """
        self._api = api
        self._requests = requests
        self._ask = ask
        self._why_emptied = why_emptied
        self._clock = clock
        self._random = random
        self._on_event = on_event
        self._failures = 0
        self._retry_at_s = 0.0
        self._refusals = Refusals()
        self._readiness = Readiness()
        self._awaited = Awaited()
        self._problems = LastProblems()
        self._lasting = Lasting(clock)
        self._proven = ""
        """The revision of which all voters were ready at once; empty before that."""
        self._rolling = ""
        self._halted: object = None
        """The last halt that an Event has reported."""
        self._refused = ""
        self.problem: Problem | None = None
        """What the next step waits for."""

    def forget(self) -> None:
        """Forget what the last step waited for, because there is nothing to roll to now."""
        self.wait(None)
        self._lasting.forget()

    def take_as_proven(self, wanted: Revision) -> None:
        """Record that an earlier operator has seen all voters of this revision ready at once."""
        self._proven = wanted.name

    def wait(self, problem: Problem | None) -> None:
        """Take no step now, because of `problem`."""
        self.problem, self._halted = problem, None

    async def run_once(
        self,
        group: Group,
        wanted: Revision,
        membership: Membership,
        *,
        identity: str,
        led: bool,
        scaling: bool,
        begins: bool = False,
        closed: Problem | None = None,
        failures: Sequence[CreationFailure] = (),
    ) -> float | None:
        """Take at most one step. Return the seconds until the next run; None if nothing is left.

        `closed` says why no pod of a group that has had a leader may be replaced now.
        `begins` says that pods are also replaced if their settings do not let members begin the
        group. `failures` say why pods could not be created, the latest first.

        The members are asked first, after the pods were listed. Nothing is done unless the
        StatefulSet makes pods of the revision `wanted`.
        """
        existing = await self._api.stateful_set(group.namespace, names.stateful_set(group.name))
        if existing is None or existing.revision != wanted:
            self.wait(None)
            return self._lasting.pause_s(existing and (existing.uid, existing.revision))
        listed = await self._api.member_pods(group.namespace, group.name)
        members = [pod for pod in listed if is_member(pod, group.name, {existing.uid})]
        pods = self._problems.observe(members, wanted)
        since_s = self._readiness.observe(pods, self._clock())
        awaited_s = self._awaited.observe(pods, wanted, membership.voters, self._clock())
        current = all(pod.revision == wanted for pod in pods) and not begins
        ready = {pod.member_id for pod in pods if pod.ready and not pod.leaving}
        if current and (membership.voters <= ready or self._proven == wanted.name):
            self._done(group, wanted)
            return None
        claims = await self._api.volume_claims(group.namespace, group.name)
        answers = await self._ask(pods)
        elections_s = ELECTIONS_MIN * group.election_timeout_ms / 1000
        state = roll_state(
            pods,
            answers,
            wanted,
            membership,
            led=led,
            scaling=scaling,
            begins=begins,
            claims=claims,
            staying=frozenset(group.member_ids),
            emptied=frozenset(pod.uid for pod in pods if self._why_emptied(pod)),
            template_hash=existing.template_hash,
            since_s=since_s,
            seed=group.seed,
            leaderless_s_min=max(LEADERLESS_S_MIN, elections_s),
            refused=refused_pods(group.name, failures),
            awaited_s=awaited_s,
        )
        if current:
            self._wait(group, unproven(state), pods, wanted)
        elif closed and state.led:
            self.wait(closed)
        else:
            self._proven = ""
            await self._take_step(group, state, pods, answers, identity, wanted)
        return self._pause_s(wanted, pods)

    def _pause_s(self, wanted: Revision, pods: Sequence[PodView]) -> float:
        """Return how soon to look again while pods are behind; most of what a roll waits for causes
        no event.
        """
        problem = self.problem and (self.problem.reason, without_numbers(self.problem.message))
        seen = [(pod.uid, pod.ready, pod.leaving) for pod in pods]
        return self._lasting.pause_s((wanted, problem, seen))

    async def _take_step(
        self,
        group: Group,
        state: RollState,
        pods: Sequence[PodView],
        answers: Mapping[str, NodeStatus],
        identity: str,
        wanted: Revision,
    ) -> None:
        step = next_step(replace(state, refusals=self._refusals.of(state.leader_id)))
        if step is None or isinstance(step, Wait):
            self._wait(group, step, pods, wanted)
        elif isinstance(step, ReplacePod):
            self.problem = None
            pod = next(each for each in pods if each.uid == step.uid)
            await self._replace(group, pod, step, wanted)
        elif isinstance(step, HandOver) and self._clock() >= self._retry_at_s:
            pod = next(each for each in pods if each.member_id == step.leader_id)
            leader = Leader(term=answers[pod.uid].term, member_id=step.leader_id)
            await self._hand_over(group, pod, leader, step.to, identity)

    async def _replace(
        self, group: Group, pod: PodView, step: ReplacePod, wanted: Revision
    ) -> None:
        try:
            await self._api.replace_pod(pod)
        except (ConflictError, NotFoundError) as error:
            logger.info("%s/%s: %s", group.namespace, group.name, error)
            return
        except EvictionRefusedError as error:
            message = f"{error}; the roll goes on as soon as the budget permits it"
            self.problem = Problem(reason=reasons.DISRUPTION_BUDGET, message=message)
            return
        except RefusedError as error:
            message = f"the API server refuses to remove {pod.name}: {error}"
            if self._refused != message:
                self._record(group, WARNING, REMOVAL_REFUSED, message)
            self._refused = message
            self.problem = Problem(reason=REMOVAL_REFUSED, message=message)
            return
        self._refused = ""
        self._rolling = wanted.name
        waits = f"waits for {pod.name}, which is being replaced"
        self.problem = Problem(reason=reasons.POD_STARTING, message=waits)
        message = f"replaced pod {pod.name} for revision {wanted.name}: {step.why}"
        self._record(group, NORMAL, reasons.POD_REPLACED, message)

    async def _hand_over(
        self, group: Group, pod: PodView, leader: Leader, to: str, identity: str
    ) -> None:
        try:
            answer = await self._requests.transfer(
                pod.ip, group.name, leader, to, identity=identity
            )
            refusal = "" if answer.code is DLedgerResponseCode.SUCCESS else answer.code.name
        except MemberSilentError as error:
            refusal = str(error)
        if refusal:
            self._refusals.add(leader.member_id, to)
            self._failures += 1
            pause_s = backoff_s(self._failures, RETRY_S_MIN, RETRY_S_MAX, self._random)
            self._retry_at_s = self._clock() + pause_s
            message = f"{leader.member_id} did not transfer its leadership to {to}: {refusal}"
            self.problem = Problem(reason=reasons.TRANSFER_REFUSED, message=message)
            return
        self._failures = 0
        self._refusals.clear()
        self.problem = None
        message = (
            f"{leader.member_id} transferred its leadership to {to}, because its pod is to be "
            "replaced"
        )
        self._record(group, NORMAL, reasons.LEADERSHIP_MOVED, message)

    def _wait(
        self, group: Group, step: Wait | None, pods: Sequence[PodView], wanted: Revision
    ) -> None:
        """Record why no step is taken. A halt is reported once, even if its message changes."""
        self.problem = step.problem if step else None
        if step is None or step.reason not in (ROLL_HALTED, reasons.STALLED):
            return
        halt = (step.reason, wanted, {pod.uid for pod in pods})
        if self._halted != halt:
            self._halted = halt
            self._record(group, WARNING, step.reason, step.message)

    def _done(self, group: Group, wanted: Revision) -> None:
        self.problem, self._halted, self._failures = None, None, 0
        self._lasting.forget()
        self._proven = wanted.name
        if self._rolling == wanted.name:
            self._rolling = ""
            message = f"every pod is of revision {wanted.name}"
            self._record(group, NORMAL, ROLL_COMPLETED, message)

    def _record(self, group: Group, severity: str, reason: str, message: str) -> None:
        logger.info("%s/%s: %s", group.namespace, group.name, message)
        self._on_event(EventNote(severity=severity, reason=reason, message=message))
