"""Linearizable reads of the register, DLedger's example of a state machine.

A read waits until this member has proved that it leads, and then until the state machine has
applied every entry that was committed by then.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.register import ReadRegisterRequest, ReadRegisterResponse
from dledger_node.raft.core import Raft
from dledger_node.services.due_answers import DueAnswers
from dledger_node.services.refusals import Prove
from dledger_node.services.waiting import ANSWER_WAIT_S, Answer, CommitWaiters, Waiter, answer_all
from dledger_node.state_machine.machine import StateMachine
from dledger_node.state_machine.register import Register

READS_MAX: Final = 10_000
_ANY_TERM: Final = 0
"""Stands for every term: a proved read stays valid under later leaders, so it outlasts a term."""

Reply: TypeAlias = Callable[[ReadRegisterResponse], None]


class State(Protocol):
    """The member's state, which follows the committed log."""

    @property
    def applied_index(self) -> int:
        """Index up to which every entry is applied."""

    @property
    def machine(self) -> StateMachine | None:
        """The current state machine; None if the group keeps no state."""

    def call_when_applied(self, listener: Callable[[int], None]) -> None:
        """Call `listener` with the applied index whenever it advances."""


class RegisterReads:
    """Answers READ_REGISTER."""

    def __init__(
        self,
        core: Raft,
        state: State,
        *,
        group: str,
        prove: Prove,
        reads_max: int = READS_MAX,
        wait_s: float = ANSWER_WAIT_S,
    ) -> None:
        self._core = core
        self._state = state
        self._group = group
        self._prove = prove
        self._wait_s = wait_s
        self._loop = asyncio.get_running_loop()
        self._waiters = CommitWaiters[Answer](reads_max)
        self._due = DueAnswers()
        state.call_when_applied(self._applied)

    def read(self, request: ReadRegisterRequest, reply: Reply) -> None:
        """Answer a read once every entry that was acknowledged before it is applied."""
        if not isinstance(self._state.machine, Register):
            reply(self._response(request, DLedgerResponseCode.UNSUPPORTED))
            return

        def answer(code: DLedgerResponseCode) -> None:
            reply(self._response(request, code))

        def proved(code: DLedgerResponseCode) -> None:
            if code is DLedgerResponseCode.SUCCESS:
                self._answer_when_applied(self._core.readable_index, answer)
            else:
                answer(code)

        self._prove(proved)

    @property
    def next_deadline_s(self) -> float:
        """No deadline of a waiting request is earlier than this time."""
        return self._waiters.next_deadline_s

    def expire(self, now_s: float) -> None:
        """Answer the reads that timed out while waiting for the state machine."""
        self._due.answer(self._waiters.take_expired(now_s), DLedgerResponseCode.LEADER_NOT_READY)

    def give_up(self) -> None:
        """Answer every read that waits."""
        self._due.give_up(DLedgerResponseCode.LEADER_NOT_READY)
        answer_all(self._waiters.take_all(), DLedgerResponseCode.LEADER_NOT_READY)

    def _answer_when_applied(self, index: int, answer: Answer) -> None:
        if index <= self._state.applied_index:
            answer(DLedgerResponseCode.SUCCESS)
        elif self._waiters.count + self._due.count >= self._waiters.count_max:
            answer(DLedgerResponseCode.LEADER_NOT_READY)
        else:
            deadline_s = self._loop.time() + self._wait_s
            self._waiters.add(Waiter([answer], index, _ANY_TERM, deadline_s))

    def _applied(self, applied_index: int) -> None:
        released, _ = self._waiters.release(applied_index, _ANY_TERM)
        self._due.answer(released, DLedgerResponseCode.SUCCESS)

    def _response(
        self, request: ReadRegisterRequest, code: DLedgerResponseCode
    ) -> ReadRegisterResponse:
        value = None
        machine = self._state.machine  # restoring the state may have replaced it
        if code is DLedgerResponseCode.SUCCESS and isinstance(machine, Register):
            value = machine.get(request.key)
        return ReadRegisterResponse(
            code=code,
            group=self._group,
            leader_id=self._core.leader_id,
            term=self._core.term,
            key=request.key,
            value=value,
        )
