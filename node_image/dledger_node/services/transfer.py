"""Leadership transfers, on a client's request and before a member stops.

The core carries out a transfer; this module waits for the outcome. Specification: DLedger's
LEADERSHIP_TRANSFER (51005), including the order of its checks.

A transfer waits for a leader, not for a log index, so `CommitWaiters` does not fit.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.leadership_transfer import (
    LeadershipTransferRequest,
    LeadershipTransferResponse,
)
from dledger_node.raft.core import Raft
from dledger_node.raft.proposals import Refusal, RefusalReason

logger = logging.getLogger(__name__)

_CODES: Final = {
    RefusalReason.NOT_LEADER: DLedgerResponseCode.NOT_LEADER,
    RefusalReason.UNKNOWN_MEMBER: DLedgerResponseCode.UNKNOWN_MEMBER,
    RefusalReason.FALL_BEHIND_TOO_MUCH: DLedgerResponseCode.FALL_BEHIND_TOO_MUCH,
    RefusalReason.LEADER_TRANSFERRING: DLedgerResponseCode.LEADER_TRANSFERRING,
}
_STOPPING: Final = Refusal(reason=RefusalReason.NOT_LEADER, leader_id=None)
Reply: TypeAlias = Callable[[LeadershipTransferResponse], None]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A request whose transfer is under way."""

    transferee_id: str
    reply: Reply
    deadline_s: float


class LeadershipTransfers:
    """The transfers of one member. There is at most one at a time."""

    def __init__(
        self,
        core: Raft,
        *,
        group: str,
        timeout_s: float,
        drive: Callable[[Callable[[], None]], None],
    ) -> None:
        """`timeout_s` bounds the wait for the transferee's first message as the leader. `drive`
        gives the core an input and runs the resulting work.
        """
        self._core = core
        self._group = group
        self._timeout_s = timeout_s
        self._drive = drive
        self._loop = asyncio.get_running_loop()
        self._waiting: _Waiting | None = None
        self._handing_over: asyncio.Event | None = None

    def transfer(self, request: LeadershipTransferRequest, reply: Reply) -> None:
        """Begin a transfer. It is answered once its outcome is known."""
        refused = self._refuse(request)
        if refused is None:
            outcome = self._begin(request.transferee_id)
            refused = _CODES[outcome.reason] if outcome else None
        if refused is not None:
            reply(self._response(refused))
            return
        self._waiting = _Waiting(request.transferee_id, reply, self._loop.time() + self._timeout_s)
        self._answer_if_decided()

    def on_turn(self, committed_index: int) -> None:
        """Answer the transfer if its outcome is known now."""
        if self._handing_over is not None and self._core.transferee_id is None:
            self._handing_over.set()  # another member leads, or the transfer has failed
        self._answer_if_decided()

    @property
    def next_deadline_s(self) -> float:
        """The deadline of the transfer under way."""
        return self._waiting.deadline_s if self._waiting is not None else math.inf

    def expire(self, now_s: float) -> None:
        """Answer the transfer if no new leader has sent a message in time."""
        waiting = self._waiting
        if waiting is not None and self._core.leader_id is None and waiting.deadline_s <= now_s:
            self._answer(DLedgerResponseCode.TAKE_LEADERSHIP_FAILED)

    def give_up(self) -> None:
        """Answer the pending transfer: its outcome is unknown."""
        if self._waiting is not None:
            self._answer(DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT)

    async def hand_over(self, timeout_s: float) -> None:
        """Transfer the leadership to the fittest peer before this member stops.

        Return after `timeout_s`, or once no peer can take over, even if this member still leads.
        A peer that declines is asked again once it is fit; it may have caught up. A peer that
        neither declines nor stands is asked only once, since the leader takes no appends while
        it waits for it.
        """
        self._handing_over = asyncio.Event()
        silent_ids: set[str] = set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._core.leads:
                    fit_ids = [one for one in self._core.fit_peer_ids if one not in silent_ids]
                    if self._core.transferee_id is None and fit_ids:
                        if not await self._hand_over_to(fit_ids[0]):
                            return
                        if fit_ids[0] not in self._core.declined_peer_ids:
                            silent_ids.add(fit_ids[0])
                    elif self._core.transferee_id or self._core.declined_peer_ids:
                        await self._no_transfer()
                    else:
                        return

    async def _hand_over_to(self, transferee_id: str) -> bool:
        """Transfer the leadership, and wait for the outcome. Return False if it is refused."""
        if self._begin(transferee_id) is not None:
            return False
        if self._core.leads:
            await self._no_transfer()
        if not self._core.leads:
            logger.info("%s: handed the leadership over to %s", self._group, transferee_id)
        return True

    async def _no_transfer(self) -> None:
        """Wait for the next turn at whose end no transfer is under way."""
        assert self._handing_over is not None
        self._handing_over.clear()
        await self._handing_over.wait()

    def _answer_if_decided(self) -> None:
        waiting, leader_id = self._waiting, self._core.leader_id
        if waiting is None or leader_id is None:
            return  # without a leader, an election is under way
        if leader_id == waiting.transferee_id:
            self._answer(DLedgerResponseCode.SUCCESS)
        elif not (self._core.leads and self._core.transferee_id is not None):
            self._answer(DLedgerResponseCode.TAKE_LEADERSHIP_FAILED)

    def _answer(self, code: DLedgerResponseCode) -> None:
        waiting, self._waiting = self._waiting, None
        assert waiting is not None
        waiting.reply(self._response(code))

    def _begin(self, transferee_id: str) -> Refusal | None:
        outcome: list[Refusal | None] = []
        self._drive(lambda: outcome.append(self._core.transfer_leadership(transferee_id)))
        return outcome[0] if outcome else _STOPPING

    def _refuse(self, request: LeadershipTransferRequest) -> DLedgerResponseCode | None:
        """Return the refusal's code if a field that the core does not check is wrong; else None."""
        if request.transfer_id != self._core.config.self_id:
            return DLedgerResponseCode.UNEXPECTED_ARGUMENT
        if request.transferee_id not in self._core.config.peers:
            return DLedgerResponseCode.UNKNOWN_MEMBER
        if request.term != self._core.term:
            return DLedgerResponseCode.INCONSISTENT_TERM
        return None

    def _response(self, code: DLedgerResponseCode) -> LeadershipTransferResponse:
        return LeadershipTransferResponse(
            code=code, group=self._group, leader_id=self._core.leader_id, term=self._core.term
        )
