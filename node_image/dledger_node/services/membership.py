"""Membership changes on behalf of clients: the core decides, this module answers.

A request names the desired state, so requesting a change that was already made succeeds. The
success is reported only once this member has proved that it leads, because a deposed leader may
lack later changes.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from dledger_formats.log.memberships import BODY_BYTES_MAX
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.membership_change import (
    ChangeKind,
    ChangeMembershipRequest,
    ChangeMembershipResponse,
)
from dledger_node.raft.core import Raft
from dledger_node.raft.membership import AddLearner, Change, Demote, Promote, Remove
from dledger_node.raft.proposals import Proposal, Refusal, RefusalReason
from dledger_node.services.refusals import PROPOSAL_CODES, Prove, Room
from dledger_node.services.waiting import ANSWER_WAIT_S, CommitWaiters, Waiter
from dledger_node.store.log.log_store import LogStore

logger = logging.getLogger(__name__)

_CHANGES: Final[dict[ChangeKind, Callable[[str], Change]]] = {
    ChangeKind.ADD_LEARNER: AddLearner,
    ChangeKind.PROMOTE: Promote,
    ChangeKind.DEMOTE: Demote,
    ChangeKind.REMOVE: Remove,
}
_CODES: Final = {
    **PROPOSAL_CODES,
    RefusalReason.TERM_NOT_COMMITTED: DLedgerResponseCode.LEADER_NOT_READY,
    RefusalReason.FALL_BEHIND_TOO_MUCH: DLedgerResponseCode.FALL_BEHIND_TOO_MUCH,
    RefusalReason.MEMBERSHIP_CHANGING: DLedgerResponseCode.MEMBERSHIP_CHANGING,
    RefusalReason.UNKNOWN_MEMBER: DLedgerResponseCode.NO_SUCH_MEMBER,
    RefusalReason.LAST_VOTER: DLedgerResponseCode.LAST_VOTER,
    RefusalReason.QUORUM_AT_RISK: DLedgerResponseCode.QUORUM_AT_RISK,
    RefusalReason.TOO_MANY_MEMBERS: DLedgerResponseCode.TOO_MANY_MEMBERS,
}
_UNKNOWN: Final = DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT
Reply: TypeAlias = Callable[[ChangeMembershipResponse], None]


class MembershipChanges:
    """The changes of one leader. The core allows one at a time."""

    def __init__(
        self,
        core: Raft,
        store: LogStore,
        *,
        group: str,
        room: Room,
        drive: Callable[[Callable[[], None]], None],
        prove: Prove,
    ) -> None:
        """`drive` gives the core an input and runs the resulting work."""
        self._core = core
        self._store = store
        self._group = group
        self._room = room
        self._drive = drive
        self._prove = prove
        self._loop = asyncio.get_running_loop()
        self._waiters = CommitWaiters[Reply](1)

    def change(self, request: ChangeMembershipRequest, reply: Reply) -> None:
        """Begin a change. It is answered once its entry is committed."""
        if not self._core.leads:
            reply(self._response(DLedgerResponseCode.NOT_LEADER))
            return
        refused = self._room.reserve([BODY_BYTES_MAX])
        if refused is not None:
            reply(self._response(refused))
            return
        change = _CHANGES[request.change](request.member_id)
        outcome: list[Proposal | Refusal] = []
        self._drive(lambda: outcome.append(self._begin(change, reply)))
        if not outcome:
            return  # this member must stop
        begun = outcome[0]
        if isinstance(begun, Proposal):
            logger.info("membership change %s %s: entry %d", request.change.value.lower(),
                        request.member_id, begun.first_index)  # fmt: skip
        elif self._is_done(change, begun.reason):
            self._prove(lambda code: reply(self._response(code)))
        else:
            reply(self._response(_CODES[begun.reason]))

    def on_turn(self, committed_index: int) -> None:
        """Answer the change if its outcome is decided."""
        core = self._core
        if self._waiters.count:
            leading_term = core.term if core.leads else None
            committed, unknown = self._waiters.release(committed_index, leading_term)
            self._answer(committed, DLedgerResponseCode.SUCCESS)
            for waiter in unknown:
                # A leader that has removed itself steps down once that is committed. Its log still
                # shows whether the entry at the index is its own.
                kept = (
                    waiter.last_index <= committed_index
                    and self._term_at(waiter.last_index) == waiter.term
                )
                self._answer([waiter], DLedgerResponseCode.SUCCESS if kept else _UNKNOWN)

    @property
    def next_deadline_s(self) -> float:
        """No deadline of a waiting request is earlier than this time."""
        return self._waiters.next_deadline_s

    def expire(self, now_s: float) -> None:
        """Answer the change if it has timed out: its outcome is unknown."""
        self._answer(self._waiters.take_expired(now_s), _UNKNOWN)

    def give_up(self) -> None:
        """Answer the pending change: its outcome is unknown."""
        self._answer(self._waiters.take_all(), _UNKNOWN)

    def _begin(self, change: Change, reply: Reply) -> Proposal | Refusal:
        begun = self._core.change_membership(change)
        if isinstance(begun, Proposal):
            self.give_up()  # the pending change is of an earlier term
            deadline_s = self._loop.time() + ANSWER_WAIT_S
            self._waiters.add(Waiter([reply], begun.last_index, begun.term, deadline_s))
        return begun

    def _is_done(self, change: Change, reason: RefusalReason) -> bool:
        """Return whether a change is refused because the membership is already as requested."""
        known = change.member_id in (*self._core.config.peers, self._core.config.self_id)
        gone = known and isinstance(change, Remove) and reason is RefusalReason.UNKNOWN_MEMBER
        return gone or reason is RefusalReason.ALREADY_MEMBER

    def _term_at(self, index: int) -> int | None:
        """Return the term of an entry, or None if the log does not hold it."""
        if not self._store.begin_index <= index <= self._store.end_index:
            return None
        return self._store.position(index).term

    def _answer(self, waiters: Iterable[Waiter[Reply]], code: DLedgerResponseCode) -> None:
        for waiter in waiters:
            for reply in waiter.replies:
                reply(self._response(code))

    def _response(self, code: DLedgerResponseCode) -> ChangeMembershipResponse:
        current = self._core.memberships.current
        return ChangeMembershipResponse(
            code=code,
            group=self._group,
            leader_id=self._core.leader_id,
            term=self._core.term,
            voters=current.voters,
            learners=current.learners,
            index=self._core.memberships.last_index,
        )
