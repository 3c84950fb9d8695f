"""Changes of the membership that clients ask for: the core decides, here the outcome is awaited.

A change is asked for in terms of what shall be, so what is so already is a success. That is told
only once this member has proved that it leads: a leader that was deposed unawares may not have
heard of later changes.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dledger_formats.log.memberships import BODY_BYTES_MAX
from dledger_formats.protocol.membership_change import (
    ChangeKind,
    ChangeMembershipRequest,
    ChangeMembershipResponse,
)
from dledger_formats.protocol.requests import DLedgerResponseCode
from dledger_node.raft.core import Raft
from dledger_node.raft.membership import AddLearner, Change, Demote, Promote, Remove
from dledger_node.raft.proposals import Proposal, Refusal, RefusalReason
from dledger_node.store.log.log_store import LogStore

logger = logging.getLogger(__name__)

WAIT_S: Final = 2.0
"""After this a change is answered with 502, as an append is."""
_CHANGES: Final[dict[ChangeKind, Callable[[str], Change]]] = {
    ChangeKind.ADD_LEARNER: AddLearner,
    ChangeKind.PROMOTE: Promote,
    ChangeKind.DEMOTE: Demote,
    ChangeKind.REMOVE: Remove,
}
_CODES: Final = {
    RefusalReason.NOT_LEADER: DLedgerResponseCode.NOT_LEADER,
    RefusalReason.LEADER_TRANSFERRING: DLedgerResponseCode.LEADER_TRANSFERRING,
    RefusalReason.TERM_NOT_COMMITTED: DLedgerResponseCode.LEADER_NOT_READY,
    RefusalReason.FALL_BEHIND_TOO_MUCH: DLedgerResponseCode.FALL_BEHIND_TOO_MUCH,
    RefusalReason.MEMBERSHIP_CHANGING: DLedgerResponseCode.MEMBERSHIP_CHANGING,
    RefusalReason.UNKNOWN_MEMBER: DLedgerResponseCode.NO_SUCH_MEMBER,
    RefusalReason.LAST_VOTER: DLedgerResponseCode.LAST_VOTER,
    RefusalReason.QUORUM_AT_RISK: DLedgerResponseCode.QUORUM_AT_RISK,
    RefusalReason.TOO_MANY_MEMBERS: DLedgerResponseCode.TOO_MANY_MEMBERS,
}
Reply = Callable[[ChangeMembershipResponse], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """One who is answered when the entry of its change is committed."""

    index: int
    term: int
    reply: Reply
    deadline_s: float


class MembershipChanges:
    """The changes of one leader; the core allows one at a time."""

    def __init__(
        self,
        core: Raft,
        store: LogStore,
        *,
        group: str,
        has_room: Callable[[Sequence[int]], bool],
        drive: Callable[[Callable[[], None]], None],
        prove: Callable[[Callable[[DLedgerResponseCode], None]], None],
    ) -> None:
        """`prove` tells SUCCESS once this member is proved to lead, or why that cannot be."""
        self._core = core
        self._store = store
        self._group = group
        self._has_room = has_room
        self._drive = drive
        self._prove = prove
        self._loop = asyncio.get_running_loop()
        self._waiting: _Waiting | None = None

    def request(self, request: ChangeMembershipRequest, reply: Reply) -> None:
        """Begin what a client asks for; the answer comes when it is decided."""
        if not self._core.leads:
            reply(self._response(DLedgerResponseCode.NOT_LEADER))
            return
        if not self._has_room([BODY_BYTES_MAX]):
            reply(self._response(DLedgerResponseCode.DISK_FULL))
            return
        change = _CHANGES[request.change](request.member_id)
        outcome: list[Proposal | Refusal] = []
        self._drive(lambda: outcome.append(self._begin(change, reply)))
        if not outcome:
            return  # this member must stop
        begun = outcome[0]
        if isinstance(begun, Proposal):
            logger.info("membership: %s %s, by entry %d", request.change.value.lower(),
                        request.member_id, begun.first_index)  # fmt: skip
        elif self._is_so(change, begun.reason):
            self._prove(lambda code: reply(self._response(code)))
        else:
            reply(self._response(_CODES[begun.reason]))

    def settle(self) -> None:
        """Answer who waits, if it is decided now; called after everything the core was given."""
        waiting = self._waiting
        if waiting is None:
            return
        if self._core.committed_index >= waiting.index:
            kept = self._term_at(waiting.index) == waiting.term
            self._answer(
                DLedgerResponseCode.SUCCESS if kept else DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT
            )
        elif not self._core.leads or self._core.term != waiting.term:
            self.give_up()

    def expire(self) -> None:
        """Answer who has waited too long."""
        if self._waiting is not None and self._waiting.deadline_s <= self._loop.time():
            self.give_up()

    def give_up(self) -> None:
        """Answer who waits: the change may yet be committed, or not."""
        if self._waiting is not None:
            self._answer(DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT)

    def _begin(self, change: Change, reply: Reply) -> Proposal | Refusal:
        begun = self._core.change_membership(change)
        if isinstance(begun, Proposal):
            self.give_up()  # of an earlier term
            self._waiting = _Waiting(
                index=begun.first_index,
                term=begun.term,
                reply=reply,
                deadline_s=self._loop.time() + WAIT_S,
            )
        return begun

    def _is_so(self, change: Change, reason: RefusalReason) -> bool:
        """Whether a change is refused for being done; who is gone cannot be removed again."""
        known = change.member_id in (*self._core.config.peers, self._core.config.self_id)
        gone = known and isinstance(change, Remove) and reason is RefusalReason.UNKNOWN_MEMBER
        return gone or reason is RefusalReason.ALREADY_MEMBER

    def _term_at(self, index: int) -> int | None:
        """The term of an entry that is committed; None when it is here no more."""
        if not self._store.begin_index <= index <= self._store.end_index:
            return None
        return self._store.position(index).term

    def _answer(self, code: DLedgerResponseCode) -> None:
        waiting, self._waiting = self._waiting, None
        assert waiting is not None
        waiting.reply(self._response(code))

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
