"""Appends that may be in the log already, and the registration of those who number them.

What the log has of a producer, its table of producers says (`store.producers`). A copy of what is
there is not appended, but answered with the place of the first as soon as that is committed.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from dledger_formats.log import disk
from dledger_formats.log.channels import channel_of
from dledger_formats.protocol import frames, requests
from dledger_formats.protocol.producers import RegisterProducerRequest, RegisterProducerResponse
from dledger_formats.protocol.requests import AppendEntryResponse, DLedgerResponseCode, Message
from dledger_node.raft.core import Raft
from dledger_node.raft.proposals import Refusal
from dledger_node.remoting.service import AppendCall, Caller, IdempotentCall, Reply
from dledger_node.store.derived.producers import Finding
from dledger_node.store.log.log_store import LogStore

WAIT_S: Final = 2.0
"""After this a copy is answered with 502, as an append is."""
_REFUSALS: Final = {
    Finding.TOO_OLD: DLedgerResponseCode.SEQUENCE_TOO_OLD,
    Finding.TOO_NEW: DLedgerResponseCode.SEQUENCE_TOO_NEW,
}


class Entries(NamedTuple):
    """What is proposed to the core: its handle on bodies that become entries."""

    bodies: Sequence[bytes]
    channels: Sequence[int] | None = None
    """One for each body; None when all are 0."""
    magic: int = disk.NORMAL


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiter:
    """One who is answered when an entry is committed that is in the log already."""

    index: int
    deadline_s: float
    reply: Reply
    answer: Callable[[DLedgerResponseCode], Message]
    """Makes the answer; of SUCCESS only once the entry is committed."""


class IdempotentAppends:
    """Sorts out copies; what it refuses or answers is told to nobody else.

    Invariant: all that waits was asked for in `_term`, in which this member leads.
    """

    def __init__(
        self,
        core: Raft,
        store: LogStore,
        *,
        group: str,
        waiters_max: int,
        has_room: Callable[[Sequence[int]], bool],
        drive: Callable[[], None],
        prove: Callable[[Callable[[DLedgerResponseCode], None]], None],
    ) -> None:
        """`prove` tells SUCCESS once this member is proved to lead, or why that cannot be."""
        self._core = core
        self._store = store
        self._group = group
        self._waiters_max = waiters_max
        self._has_room = has_room
        self._drive = drive
        self._prove = prove
        self._loop = asyncio.get_running_loop()
        self._waiters: list[_Waiter] = []
        self._lowest_index = 0
        self._term = -1
        self.repeated = 0
        """Copies that were answered with the first one's place."""

    def sort_out(
        self, calls: Sequence[IdempotentCall]
    ) -> tuple[list[IdempotentCall], list[IdempotentCall]]:
        """Answer, now or later, what is not to be appended.

        Returns those that are, and those to sort out again behind them: further copies.
        """
        fresh: list[IdempotentCall] = []
        again: list[IdempotentCall] = []
        taken: set[tuple[int, int]] = set()
        find = self._store.producers.table.find
        for call in calls:
            found = find(call.producer, call.sequence)
            if found is Finding.NEW:
                key = (call.producer, call.sequence)
                (again if key in taken else fresh).append(call)
                taken.add(key)
            elif found is Finding.UNKNOWN_PRODUCER:
                self._refuse_unknown(call)
            elif isinstance(found, Finding):
                self._reply_to(call)(self._append_answer(_REFUSALS[found]))
            else:
                self._answer_copy(call, found)
        return fresh, again

    def channels(self, calls: Sequence[AppendCall]) -> list[int]:
        """The channels with which appends are written; 0 for ordinary ones."""
        channel = self._store.producers.table.channel
        return [
            channel(call.producer, call.sequence) if isinstance(call, IdempotentCall) else 0
            for call in calls
        ]

    def register(self, _: RegisterProducerRequest, reply: Reply) -> None:
        """Give a new producer its identity: the index of its registration, once committed."""
        core = self._core
        if not core.leads:
            reply(self._registration_answer(DLedgerResponseCode.NOT_LEADER))
        elif len(self._waiters) >= self._waiters_max:
            reply(self._registration_answer(DLedgerResponseCode.LEADER_PENDING_FULL))
        elif not self._has_room([0]):
            reply(self._registration_answer(DLedgerResponseCode.DISK_FULL))
        else:
            self._propose_registration(reply)

    def settle(self, committed_index: int) -> None:
        """Answer who waits for what is committed by now, or everybody once this member leads no
        more: another's entry may take the place of theirs.
        """
        if not self._waiters:
            return
        core = self._core
        if not core.leads or core.term != self._term:
            self.give_up()
        elif self._lowest_index <= committed_index:
            done = [waiter for waiter in self._waiters if waiter.index <= committed_index]
            self._keep([waiter for waiter in self._waiters if waiter.index > committed_index])
            for waiter in done:
                waiter.reply(waiter.answer(DLedgerResponseCode.SUCCESS))

    def expire(self) -> None:
        """Answer what has waited too long."""
        if self._waiters:
            now_s = self._loop.time()
            self._give_up([waiter for waiter in self._waiters if waiter.deadline_s <= now_s])

    def give_up(self) -> None:
        """Answer everything that waits: this member leads no more, or stops."""
        self._give_up(self._waiters)

    def _refuse_unknown(self, call: IdempotentCall) -> None:
        """Say that nobody knows its producer; a leader that was deposed unawares may just not have
        heard of it.
        """
        reply = self._reply_to(call)

        def answer(code: DLedgerResponseCode) -> None:
            proved = code is DLedgerResponseCode.SUCCESS
            reply(self._append_answer(DLedgerResponseCode.UNKNOWN_PRODUCER if proved else code))

        self._prove(answer)

    def _answer_copy(self, call: IdempotentCall, index: int) -> None:
        """Answer a copy of the entry `index`, at once or when that is committed."""

        def answer(code: DLedgerResponseCode) -> Message:
            if code is not DLedgerResponseCode.SUCCESS:
                return self._append_answer(code)
            self.repeated += 1
            if index < self._store.begin_index:  # removed since; so it is committed
                return AppendEntryResponse(group=self._group, index=index)
            unit = self._store.position(index)
            return AppendEntryResponse(
                group=self._group,
                leader_id=self._core.leader_id,
                term=unit.term,
                index=index,
                pos=unit.pos,
            )

        reply = self._reply_to(call)
        if index <= self._core.committed_index:
            reply(answer(DLedgerResponseCode.SUCCESS))
        elif len(self._waiters) >= self._waiters_max:
            reply(answer(DLedgerResponseCode.LEADER_PENDING_FULL))
        else:
            self._wait(index, reply, answer)

    def _propose_registration(self, reply: Reply) -> None:
        number = self._store.producers.table.next_number()
        entries = Entries([b""], [channel_of(number, 0)], disk.NOOP)
        proposal = self._core.propose(1, entries)
        if isinstance(proposal, Refusal):
            reply(self._registration_answer(DLedgerResponseCode.NOT_LEADER))
            return
        index = proposal.first_index
        self._wait(index, reply, lambda code: self._registration_answer(code, index))
        self._drive()

    def _wait(
        self, index: int, reply: Reply, answer: Callable[[DLedgerResponseCode], Message]
    ) -> None:
        deadline_s = self._loop.time() + WAIT_S
        self._term = self._core.term
        waiter = _Waiter(index=index, deadline_s=deadline_s, reply=reply, answer=answer)
        self._lowest_index = min(self._lowest_index, index) if self._waiters else index
        self._waiters.append(waiter)

    def _keep(self, waiters: list[_Waiter]) -> None:
        self._waiters = waiters
        self._lowest_index = min((waiter.index for waiter in waiters), default=0)

    def _give_up(self, waiters: Sequence[_Waiter]) -> None:
        gone = set(map(id, waiters))
        self._keep([waiter for waiter in self._waiters if id(waiter) not in gone])
        for waiter in waiters:
            waiter.reply(waiter.answer(DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT))

    def _append_answer(self, code: DLedgerResponseCode) -> Message:
        return AppendEntryResponse(
            code=code, group=self._group, leader_id=self._core.leader_id, term=self._core.term
        )

    def _registration_answer(self, code: DLedgerResponseCode, producer: int = -1) -> Message:
        return RegisterProducerResponse(
            code=code,
            group=self._group,
            leader_id=self._core.leader_id,
            term=self._core.term,
            producer=producer if code is DLedgerResponseCode.SUCCESS else -1,
        )

    def _reply_to(self, call: IdempotentCall) -> Reply:
        connection, opaque = call.connection, call.opaque
        return lambda answer: _send(connection, opaque, answer)


def _send(connection: Caller, opaque: int, answer: requests.Message) -> None:
    connection.send(frames.encode_responses([(opaque, answer.to_json())]))
