"""The proof that what this member knows to be committed is all that a read must see.

A committed entry never changes. But a leader that does not know yet that it was deposed would
say that the log ends before an entry that the new leader has acknowledged. So an answer that
depends on the end of the log waits until the core has proved that this member still leads. A proof
has a deadline: on full volumes, a leader cannot commit the first entry of its term.

Requests that any member may answer are answered even if this member does not lead: at once if they
may be stale, otherwise once this member has committed what its leader has (`read_index`).
"""

import asyncio
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.requests import Consistency
from dledger_node.raft.core import Raft
from dledger_node.raft.ready import ReadState
from dledger_node.remoting.read_index_messages import ReadIndexRequest, ReadIndexResponse
from dledger_node.services.due_answers import DueAnswers
from dledger_node.services.read_index import IndexAnswer, ReadIndexes
from dledger_node.services.waiting import (
    ANSWER_WAIT_S,
    Answer,
    CommitWaiters,
    Waiter,
    answer_all,
)

PROOFS_MAX: Final = 10_000
"""Requests that may wait for a proof; the same as Java's limit of pending requests."""


class _Proof(NamedTuple):
    """A request that waits for a proof."""

    answer: Answer
    deadline_s: float


class ReadProofs:
    """Proves to services that this member leads, or has committed what its leader has."""

    def __init__(
        self,
        core: Raft,
        indexes: ReadIndexes,
        *,
        drive: Callable[[Callable[[], None]], None],
    ) -> None:
        """`drive` gives the core an input and runs the resulting work."""
        self._core = core
        self._drive = drive
        self._indexes = indexes
        self._now_s = asyncio.get_running_loop().time
        self._in_core: dict[int, _Proof] = {}
        """Requests for a proof that the core has not answered, by number, oldest first."""
        self._in_core_count = 0
        """Their number, including those that have timed out since."""
        self._next_number = 0
        self._proved = CommitWaiters[Answer](PROOFS_MAX)
        """Requests with a proof, until their read index is committed."""
        self._due = DueAnswers()
        """Requests that are answered from the end of the turn on. A proof stays valid until then:
        what is committed here does not change.
        """

    def prove(self, answer: Answer) -> None:
        """Call `answer` once with a code.

        SUCCESS: this member was the leader after this call, and has committed every entry that was
        acknowledged before the call. NOT_LEADER: it stopped leading. LEADER_PENDING_FULL: too many
        requests are waiting. LEADER_NOT_READY: the proof took too long, for example because the
        first entry of its term cannot be committed.
        """
        if self._in_core_count + self._proved.count + self._due.count >= PROOFS_MAX:
            answer(DLedgerResponseCode.LEADER_PENDING_FULL)
            return
        self._in_core_count += 1
        self._next_number += 1
        proof = _Proof(answer, self._now_s() + ANSWER_WAIT_S)
        self._in_core[self._next_number] = proof
        self._drive(partial(self._begin, self._next_number))

    def prove_read(self, consistency: Consistency | None, answer: Answer) -> None:
        """Call `answer` once with a code.

        SUCCESS: this member's committed entries are what a read with this consistency must see.
        The codes of a refusal are those of `prove`, and of `ReadIndexes.ask`.

        A member that is not master yet refuses a read for the leader at once: it could become
        master before the reader's turn, and would then answer without a proof.
        """
        if consistency is Consistency.STALE:
            answer(DLedgerResponseCode.SUCCESS)
        elif consistency is None and not self._core.master:
            answer(DLedgerResponseCode.NOT_LEADER)
        elif self._core.leads:
            self.prove(answer)
        else:
            self._indexes.ask(answer, self._now_s())

    def ask_index(self, answer: IndexAnswer) -> None:
        """Ask the leader that this member follows for its index; see `ReadIndexes.ask_index`."""
        self._indexes.ask_index(answer, self._now_s())

    def receive(self, message: ReadIndexRequest | ReadIndexResponse) -> None:
        """Handle a peer's message about linearizable reads."""
        if isinstance(message, ReadIndexRequest):
            self._drive(lambda: self._indexes.asked(message))
        else:
            self._indexes.answered(message, self._now_s())

    def refuse(
        self, index: int, consistency: Consistency | None = None
    ) -> DLedgerResponseCode | None:
        """Return the code with which a read is refused, or None.

        A leader serves the entries that it knows to be committed even before its own first entry is
        committed, because a group whose volumes are full cannot commit one. It does not serve later
        entries until then. For a read with a consistency, every member serves what it knows to be
        committed; such a read asks for later entries only after `prove_read`.
        """
        core = self._core
        if consistency is None and not core.leads:
            return DLedgerResponseCode.NOT_LEADER
        if 0 <= index < core.ledger_begin_index:
            return DLedgerResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN
        tells_end = consistency is not None or core.master
        if index < 0 or (tells_end and index > core.readable_index):
            return DLedgerResponseCode.INDEX_OUT_OF_RANGE
        return None if index <= core.readable_index else DLedgerResponseCode.NOT_LEADER

    def proved(self, reads: Iterable[ReadState]) -> None:
        """Take the reads that the core has released. Their answers begin at the end of the turn."""
        for read in reads:
            if isinstance(read.handle, ReadIndexRequest):
                self._indexes.proved(read.handle, read.index)
                continue
            self._in_core_count -= 1
            assert isinstance(read.handle, int)
            proof = self._in_core.pop(read.handle, None)
            if proof is None:
                continue  # it has timed out
            if read.index is None:
                self._due.add(proof.answer, DLedgerResponseCode.NOT_LEADER)
            elif read.index <= self._core.committed_index:
                self._due.add(proof.answer, DLedgerResponseCode.SUCCESS)
            else:
                waiter = Waiter([proof.answer], read.index, self._core.term, proof.deadline_s)
                self._proved.add(waiter)

    def on_turn(self, committed_index: int) -> None:
        """Answer the requests that are proved and whose read index is committed."""
        self._indexes.on_turn(committed_index, self._now_s())
        if self._proved.count:
            core = self._core
            leading_term = core.term if core.leads else None
            committed, unknown = self._proved.release(committed_index, leading_term)
            self._due.answer(committed, DLedgerResponseCode.SUCCESS)
            self._due.answer(unknown, DLedgerResponseCode.NOT_LEADER)
        self._due.begin()

    @property
    def next_deadline_s(self) -> float:
        """No deadline of a waiting request is earlier than this time."""
        oldest = next(iter(self._in_core.values()), None)
        in_core_s = oldest.deadline_s if oldest is not None else math.inf
        return min(in_core_s, self._proved.next_deadline_s, self._indexes.next_deadline_s)

    def expire(self, now_s: float) -> None:
        """Refuse the requests whose proof takes too long; they may be sent again."""
        self._indexes.expire(now_s)
        late = self._proved.take_expired(now_s)
        while self._in_core:
            number, proof = next(iter(self._in_core.items()))
            if proof.deadline_s > now_s:
                break
            del self._in_core[number]
            late.append(Waiter([proof.answer], -1, -1))
        self._due.answer(late, DLedgerResponseCode.LEADER_NOT_READY)

    def give_up(self) -> None:
        """Refuse every request that waits for a proof, for its read index or for the leader."""
        self._indexes.give_up()
        waiting, self._in_core = self._in_core, {}
        for proof in waiting.values():
            proof.answer(DLedgerResponseCode.NOT_LEADER)
        self._due.give_up(DLedgerResponseCode.NOT_LEADER)
        answer_all(self._proved.take_all(), DLedgerResponseCode.NOT_LEADER)

    def _begin(self, number: int) -> None:
        if self._core.read_index(number) is not None:
            self._in_core_count -= 1
            self._in_core.pop(number).answer(DLedgerResponseCode.NOT_LEADER)
