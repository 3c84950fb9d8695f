"""Appends of canaries, which test whether the group takes appends (`dledger_formats.log.canaries`).

They are rare, so each is a proposal of its own.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from dledger_formats.log import disk
from dledger_formats.log.canaries import CANARY_CHANNEL
from dledger_formats.protocol.canary import AppendCanaryRequest
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.requests import AppendEntryResponse
from dledger_node.raft.core import Raft
from dledger_node.raft.proposals import Refusal
from dledger_node.services.proposed import ProposedEntries
from dledger_node.services.quorum_waits import QuorumWaits
from dledger_node.services.refusals import PROPOSAL_CODES, Room
from dledger_node.services.waiting import ANSWER_WAIT_S, Waiter

CANARIES_MAX: Final = 16
"""Canaries that may wait for their quorum."""

Reply: TypeAlias = Callable[[AppendEntryResponse], None]


class Identity(Protocol):
    """The identity of the group."""

    def is_foreign(self, identity: str) -> bool:
        """Return whether a request that names this identity is meant for another group."""


class Canaries(QuorumWaits):
    """Appends canaries, and answers once a quorum holds them."""

    def __init__(
        self,
        core: Raft,
        identity: Identity,
        *,
        group: str,
        room: Room,
        drive: Callable[[], None],
    ) -> None:
        """`drive` runs the core's work after a proposal."""
        super().__init__(core, CANARIES_MAX)
        self._identity = identity
        self._group = group
        self._room = room
        self._drive = drive
        self._loop = asyncio.get_running_loop()

    def append(self, request: AppendCanaryRequest, reply: Reply) -> None:
        """Append a canary; the answer follows once its outcome is decided."""
        refused = self._refusal(request)
        if refused is not None:
            self._answer(reply, refused)
            return
        entries = ProposedEntries([b""], [CANARY_CHANNEL], disk.NOOP)
        proposal = self._core.propose(1, entries)
        if isinstance(proposal, Refusal):
            self._answer(reply, PROPOSAL_CODES[proposal.reason])
            return
        index, term = proposal.first_index, proposal.term

        def answer(code: DLedgerResponseCode) -> None:
            if code is DLedgerResponseCode.SUCCESS:
                reply(
                    AppendEntryResponse(
                        group=self._group, leader_id=self._core.leader_id, term=term, index=index
                    )
                )
            else:
                self._answer(reply, code)

        deadline_s = self._loop.time() + ANSWER_WAIT_S
        self._waiters.add(Waiter([answer], index, term, deadline_s))
        self._drive()

    def _refusal(self, request: AppendCanaryRequest) -> DLedgerResponseCode | None:
        """Return why no canary can be proposed now; None if one can."""
        if self._identity.is_foreign(request.group_identity):
            return DLedgerResponseCode.UNKNOWN_GROUP
        if not self._core.leads:
            return DLedgerResponseCode.NOT_LEADER
        if self._is_full:
            return DLedgerResponseCode.LEADER_PENDING_FULL
        refused = self._room.reserve([0])
        if refused is None and self._core.lacks_room:
            return DLedgerResponseCode.DISK_FULL
        return refused

    def _answer(self, reply: Reply, code: DLedgerResponseCode) -> None:
        core = self._core
        reply(
            AppendEntryResponse(
                code=code, group=self._group, leader_id=core.leader_id, term=core.term
            )
        )
