"""Takes one step after another from the members that there are to those that the spec asks for."""

import logging
from collections.abc import Callable, Mapping
from random import Random
from typing import Final, Protocol

from dledger_formats.protocol.leadership_transfer import LeadershipTransferResponse
from dledger_formats.protocol.membership_change import ChangeKind, ChangeMembershipResponse
from dledger_formats.protocol.requests import DLedgerResponseCode, Message
from dledger_operator import names
from dledger_operator.behaviours.loops import backoff_s
from dledger_operator.behaviours.members.scale_steps import (
    ChangeMember,
    Seen,
    SetPods,
    Transfer,
    Wait,
    next_step,
)
from dledger_operator.behaviours.report.event_recorder import News
from dledger_operator.clients.errors import MemberSilentError
from dledger_operator.facts import Electorate, Leader
from dledger_operator.resources.event import NORMAL
from dledger_operator.spec.group import Group
from dledger_operator.views import StatefulSetView, Trouble

logger = logging.getLogger(__name__)

RETRY_S_MIN: Final = 0.5
# A learner that catches up is promoted at the latest so long after the leader would allow it.
RETRY_S_MAX: Final = 10.0
SCALED: Final = "Scaled"
LEADERSHIP_MOVED: Final = "LeadershipMoved"
NO_ANSWER: Final = "NoAnswer"
_MEMBER_NEWS: Final = {
    ChangeKind.ADD_LEARNER: ("MemberAdded", "takes entries as a learner"),
    ChangeKind.PROMOTE: ("MemberPromoted", "votes"),
    ChangeKind.DEMOTE: ("MemberDemoted", "votes no more"),
    ChangeKind.REMOVE: ("MemberRemoved", "belongs to the group no more"),
}
_ADVICE: Final = {
    DLedgerResponseCode.QUORUM_AT_RISK: "too few voters would be well: heal those that are not",
    DLedgerResponseCode.FALL_BEHIND_TOO_MUCH: "it has yet to catch up",
    DLedgerResponseCode.MEMBERSHIP_CHANGING: "the change before is not committed yet",
    DLedgerResponseCode.DISK_FULL: "the leader's volume is full",
    DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT: "no majority has confirmed it yet",
}


class StatefulSetApi(Protocol):
    """What this behaviour asks of the API server."""

    async def set_replicas(self, stateful_set: StatefulSetView, replicas: int) -> None:
        """Change a StatefulSet that nobody has changed since it was read; else ConflictError."""


class LeaderRequests(Protocol):
    """What is asked of the leader; MemberSilentError when it gives no answer in a known time."""

    async def change(
        self, ip: str, group: str, leader: Leader, kind: ChangeKind, member_id: str
    ) -> ChangeMembershipResponse:
        """Change one member."""

    async def transfer(
        self, ip: str, group: str, leader: Leader, to: str
    ) -> LeadershipTransferResponse:
        """Hand over."""


class Scaler:
    """Scales one group. What it remembers is for people, and for its patience."""

    def __init__(
        self,
        api: StatefulSetApi,
        requests: LeaderRequests,
        *,
        clock: Callable[[], float],
        random: Random,
        on_members: Callable[[Electorate], None],
        tell: Callable[[News], None],
    ) -> None:
        """Take `on_members` for who belongs to the group by a leader's answer to a change, and
        `tell` for what a person should hear of.
        """
        self._api = api
        self._requests = requests
        self._clock = clock
        self._random = random
        self._on_members = on_members
        self._tell = tell
        self._failures = 0
        self._retry_at_s = 0.0
        self.obstacle: Trouble | None = None
        """What keeps the members from becoming what the spec asks for."""
        self.at_rest = False
        """Whether there was nothing to do when it looked last."""

    async def turn(
        self, group: Group, seen: Seen, stateful_set: StatefulSetView, ips: Mapping[str, str]
    ) -> bool:
        """Take a step; whether there was one, so that what was seen is out of date.

        `ips` are the members' addresses.
        """
        step = next_step(seen)
        self.at_rest = step is None
        if step is None or isinstance(step, Wait):
            self.obstacle = Trouble(reason=step.reason, message=step.message) if step else None
            self._failures = 0
            return False
        if self._clock() < self._retry_at_s:
            return False
        if isinstance(step, SetPods):
            await self._set_pods(group, stateful_set, step.replicas)
            self._went_well()
            return True
        assert seen.leader is not None
        try:
            return await self._ask(group, seen.leader, ips, stateful_set, step)
        except MemberSilentError as error:
            self._failed(NO_ANSWER, str(error))
            return True

    async def _ask(
        self,
        group: Group,
        leader: Leader,
        ips: Mapping[str, str],
        stateful_set: StatefulSetView,
        step: ChangeMember | Transfer,
    ) -> bool:
        ip = ips.get(leader.member_id)
        if ip is None:
            raise MemberSilentError(f"{leader.member_id} has no address")
        if isinstance(step, Transfer):
            handed = await self._requests.transfer(ip, group.name, leader, step.to)
            if self._took(handed, f"hand over to {step.to}"):
                moved = f"{step.to} leads, since {leader.member_id} is to go"
                self._news(group, LEADERSHIP_MOVED, moved)
            return True
        changed = await self._requests.change(ip, group.name, leader, step.kind, step.member_id)
        if not self._took(changed, f"{step.kind.value} {step.member_id}"):
            return True
        members = Electorate(voters=frozenset(changed.voters), learners=frozenset(changed.learners))
        self._on_members(members)
        reason, what = _MEMBER_NEWS[step.kind]
        voters = ", ".join(changed.voters)
        self._news(group, reason, f"{step.member_id} {what}; voters are {voters}")
        ordinal = names.ordinal(step.member_id)
        gone = step.member_id not in members.voters | members.learners
        if step.kind is ChangeKind.REMOVE and gone and stateful_set.replicas == ordinal + 1:
            await self._set_pods(group, stateful_set, ordinal)
        return True

    async def _set_pods(self, group: Group, stateful_set: StatefulSetView, replicas: int) -> None:
        await self._api.set_replicas(stateful_set, replicas)
        before = stateful_set.replicas
        self._news(group, SCALED, f"the StatefulSet has {replicas} pods, after {before}")

    def _took(self, answer: Message, what: str) -> bool:
        if answer.code is DLedgerResponseCode.SUCCESS:
            self._went_well()
            return True
        advice = _ADVICE.get(answer.code)
        reason = "".join(word.capitalize() for word in answer.code.name.split("_"))
        refused = f"the leader refuses to {what}: {answer.code.name}"
        self._failed(reason, f"{refused}: {advice}" if advice else refused)
        return False

    def _went_well(self) -> None:
        self.obstacle = None
        self._failures = 0

    def _failed(self, reason: str, message: str) -> None:
        """It is tried again, later and later: what is refused now may be allowed soon."""
        self._failures += 1
        pause_s = backoff_s(self._failures, RETRY_S_MIN, RETRY_S_MAX, self._random)
        self._retry_at_s = self._clock() + pause_s
        self.obstacle = Trouble(reason=reason, message=message)

    def _news(self, group: Group, reason: str, message: str) -> None:
        logger.info("%s/%s: %s", group.namespace, group.name, message)
        self._tell(News(severity=NORMAL, reason=reason, message=message))
