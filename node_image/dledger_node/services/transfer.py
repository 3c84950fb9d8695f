"""Handing the leadership over, as seen from the shell: on a client's request, and before a stop.

The core decides and does it; here its outcome is waited for and told. Specification: DLedger's
LEADERSHIP_TRANSFER (51005), with the order of its checks.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dledger_formats.protocol.leadership_transfer import (
    LeadershipTransferRequest,
    LeadershipTransferResponse,
)
from dledger_formats.protocol.requests import DLedgerResponseCode
from dledger_node.raft.core import Raft
from dledger_node.raft.proposals import Refusal, RefusalReason

logger = logging.getLogger(__name__)

_CODES: Final = {
    RefusalReason.NOT_LEADER: DLedgerResponseCode.NOT_LEADER,
    RefusalReason.UNKNOWN_MEMBER: DLedgerResponseCode.UNKNOWN_MEMBER,
    RefusalReason.FALL_BEHIND_TOO_MUCH: DLedgerResponseCode.FALL_BEHIND_TOO_MUCH,
    RefusalReason.LEADER_TRANSFERRING: DLedgerResponseCode.LEADER_TRANSFERRING,
}
Reply = Callable[[LeadershipTransferResponse], None]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """One who asked for a transfer that is under way."""

    transferee_id: str
    reply: Reply
    deadline_s: float


class Leadership:
    """The transfers of one member; there is at most one at a time."""

    def __init__(
        self,
        core: Raft,
        *,
        group: str,
        timeout_s: float,
        drive: Callable[[Callable[[], None]], None],
    ) -> None:
        """Take in `timeout_s` how long to wait for the transferee to show itself as the leader."""
        self._core = core
        self._group = group
        self._timeout_s = timeout_s
        self._drive = drive
        self._loop = asyncio.get_running_loop()
        self._waiting: _Waiting | None = None
        self._changed = asyncio.Event()

    def request(self, request: LeadershipTransferRequest, reply: Reply) -> None:
        """Begin what a client asks for; the answer comes when it is decided."""
        refused = self._refuse(request)
        if refused is None:
            outcome = self._begin(request.transferee_id)
            refused = _CODES[outcome.reason] if outcome else None
        if refused is not None:
            reply(self._response(refused))
            return
        self._waiting = _Waiting(request.transferee_id, reply, self._loop.time() + self._timeout_s)
        self.settle()

    def settle(self) -> None:
        """Answer who waits, if it is decided now; called after everything the core was given."""
        self._changed.set()
        waiting = self._waiting
        if waiting is None:
            return
        leader_id = self._core.leader_id
        if leader_id == waiting.transferee_id:
            code = DLedgerResponseCode.SUCCESS
        elif self._core.leads and self._core.transferee_id is not None:
            return  # under way
        elif leader_id is None and self._loop.time() < waiting.deadline_s:
            return  # nobody leads for a moment
        else:
            code = DLedgerResponseCode.TAKE_LEADERSHIP_FAILED
        self._waiting = None
        waiting.reply(self._response(code))

    async def hand_over(self, timeout_s: float) -> None:
        """Let the fittest peer lead before this member stops; give up after `timeout_s`."""
        transferee_id = self._core.fittest_peer_id
        if transferee_id is None or self._begin(transferee_id) is not None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._core.leads:
                    self._changed.clear()
                    await self._changed.wait()
            logger.info("%s: handed the leadership over to %s", self._group, transferee_id)

    def _begin(self, transferee_id: str) -> Refusal | None:
        outcome: list[Refusal | None] = []
        self._drive(lambda: outcome.append(self._core.transfer_leadership(transferee_id)))
        return outcome[0]

    def _refuse(self, request: LeadershipTransferRequest) -> DLedgerResponseCode | None:
        """Check what the core does not know of, in Java's order."""
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
