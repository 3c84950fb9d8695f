"""Linearizable reads on a member that does not lead.

The member asks its leader for the index that the reads must include. The leader answers once it
has proved that it leads (Raft dissertation, 6.4, at its end), and the reads are answered when this
member has committed that index itself. One request is under way at a time; reads that arrive
meanwhile share the next one.

This module uses no connections and no clock: its owner passes in the time, and `send` sends a
message to a peer or drops it.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_node.raft.core import Raft
from dledger_node.raft.proposals import Refusal
from dledger_node.remoting.read_index_messages import (
    NOT_LEADING,
    ReadIndexRequest,
    ReadIndexResponse,
)
from dledger_node.services.waiting import ANSWER_WAIT_S, Answer, CommitWaiters, Waiter, answer_all

READS_MAX: Final = 200
"""Reads that may wait. One answer of the leader may release them all, in one turn of the loop."""
REPEAT_S: Final = 0.1
"""A request is repeated if no answer has come by then: a link may have lost it."""
PROOFS_OF_PEER_MAX: Final = 8
"""Requests of one peer that may wait for this leader's proof; further ones are dropped."""
_ANY_TERM: Final = 0
"""Stands for every term: an index stays valid under later leaders, so a read outlasts a term."""

Send = Callable[[ReadIndexRequest | ReadIndexResponse], None]


IndexAnswer: TypeAlias = Callable[[int], None]
"""Receives the index that the leader has sent; NOT_LEADING if none was sent in time."""


class _Read(NamedTuple):
    """A read whose index is not known yet."""

    answer: IndexAnswer
    deadline_s: float


class ReadIndexes:
    """Finds the index of this member's reads, and answers the peers that ask this leader."""

    def __init__(
        self,
        core: Raft,
        send: Send,
        *,
        incarnation: int,
        reads_max: int = READS_MAX,
        wait_s: float = ANSWER_WAIT_S,
        repeat_s: float = REPEAT_S,
    ) -> None:
        """`incarnation` distinguishes this start of the process from others."""
        self._core = core
        self._send = send
        self._incarnation = incarnation
        self._reads_max = reads_max
        self._wait_s = wait_s
        self._repeat_s = repeat_s
        self._round = 0
        self._asked: Sequence[_Read] = ()
        """The reads of the request that is under way."""
        self._asked_leader: tuple[int, str] = (0, "")
        """The term and the id of the leader that was asked."""
        self._repeat_at_s = 0.0
        self._next: deque[_Read] = deque()
        """The reads of the next request, oldest first."""
        self._indexed = CommitWaiters[Answer](reads_max)
        """Reads whose index is known, until it is committed here."""
        self._proofs = Counter[str]()
        """The requests of each peer that wait for a proof."""

    @property
    def waiting_count(self) -> int:
        """Number of this member's reads without an answer."""
        return len(self._asked) + len(self._next) + self._indexed.count

    # -- on a member that does not lead ----------------------------------------------------------

    def ask(self, answer: Answer, now_s: float) -> None:
        """Call `answer` once with a code.

        SUCCESS: this member has committed every entry that was acknowledged before this call.
        NOT_LEADER: it knows no leader, or its leader did not answer in time.
        FALL_BEHIND_TOO_MUCH: it did not reach the leader's index in time. LEADER_PENDING_FULL: too
        many reads wait.
        """
        if self._leader() is not None and self.waiting_count >= self._reads_max:
            answer(DLedgerResponseCode.LEADER_PENDING_FULL)
            return
        self.ask_index(partial(self._note_index, answer, now_s + self._wait_s), now_s)

    def ask_index(self, answer: IndexAnswer, now_s: float) -> None:
        """Call `answer` once with an index of a leader that has proved to lead, or NOT_LEADING.

        All entries that were acknowledged before this call are at or before the index. It is not
        before the leader's first entry of its term, which need not be committed yet. NOT_LEADING:
        no leader is known, none answered in time, or too many reads wait.
        """
        if self._leader() is None or self.waiting_count >= self._reads_max:
            answer(NOT_LEADING)
            return
        self._next.append(_Read(answer, now_s + self._wait_s))
        if not self._asked:
            self._begin_round(now_s)

    def answered(self, response: ReadIndexResponse, now_s: float) -> None:
        """Take the answer to the request that is under way; ignore any other."""
        if (
            not self._asked
            or (response.incarnation, response.round) != (self._incarnation, self._round)
            or response.sender != self._asked_leader[1]
        ):
            return
        reads, self._asked = self._asked, ()
        for read in reads:
            read.answer(response.index)
        self._begin_round(now_s)

    def _note_index(self, answer: Answer, deadline_s: float, index: int) -> None:
        """Answer a read, or let it wait until the leader's index is committed here."""
        if index == NOT_LEADING:
            answer(DLedgerResponseCode.NOT_LEADER)
        elif index <= self._core.readable_index:
            answer(DLedgerResponseCode.SUCCESS)
        else:
            self._indexed.add(Waiter([answer], index, _ANY_TERM, deadline_s))

    def on_turn(self, committed_index: int, now_s: float) -> None:
        """Answer the reads whose index is committed, and ask a new leader at once."""
        if self._indexed.count:
            released, _ = self._indexed.release(committed_index, _ANY_TERM)
            answer_all(released, DLedgerResponseCode.SUCCESS)
        if self._asked and self._leader() != self._asked_leader:
            self._send_request(now_s)

    @property
    def next_deadline_s(self) -> float:
        """Nothing is due before this time."""
        asked_s = self._repeat_at_s if self._asked else math.inf
        next_s = self._next[0].deadline_s if self._next else math.inf
        return min(asked_s, next_s, self._indexed.next_deadline_s)

    def expire(self, now_s: float) -> None:
        """Answer the reads whose deadline has passed, and repeat a request without an answer."""
        late = self._indexed.take_expired(now_s)
        answer_all(late, DLedgerResponseCode.FALL_BEHIND_TOO_MUCH)
        overdue = [read for read in self._asked if read.deadline_s <= now_s]
        if overdue:
            self._asked = self._asked[len(overdue) :]
        while self._next and self._next[0].deadline_s <= now_s:
            overdue.append(self._next.popleft())
        for read in overdue:
            read.answer(NOT_LEADING)
        if not self._asked:
            self._begin_round(now_s)
        elif now_s >= self._repeat_at_s:
            self._send_request(now_s)

    def give_up(self) -> None:
        """Refuse every read that waits."""
        reads = [*self._asked, *self._next]
        self._asked = ()
        self._next.clear()
        for read in reads:
            read.answer(NOT_LEADING)
        answer_all(self._indexed.take_all(), DLedgerResponseCode.NOT_LEADER)

    def _begin_round(self, now_s: float) -> None:
        """Send a request for the waiting reads, if there are any."""
        if self._next and not self._asked:
            self._asked = tuple(self._next)
            self._next.clear()
            self._round += 1
            self._send_request(now_s)

    def _send_request(self, now_s: float) -> None:
        """Ask the leader that is known now; refuse all reads if there is none.

        A repeated request keeps its number: all copies are sent after its reads arrived, so the
        answer to any of them is valid.
        """
        leader = self._leader()
        if leader is None:
            reads = [*self._asked, *self._next]
            self._asked = ()
            self._next.clear()
            for read in reads:
                read.answer(NOT_LEADING)
            return
        self._asked_leader = leader
        self._repeat_at_s = now_s + self._repeat_s
        self._send(
            ReadIndexRequest(
                sender=self._core.config.self_id,
                receiver=leader[1],
                incarnation=self._incarnation,
                round=self._round,
            )
        )

    def _leader(self) -> tuple[int, str] | None:
        """Return the term and the id of the leader that this member follows."""
        core = self._core
        return None if core.leads or core.leader_id is None else (core.term, core.leader_id)

    # -- on the leader ---------------------------------------------------------------------------

    def asked(self, request: ReadIndexRequest) -> None:
        """Ask the core for a proof for a peer's reads; `proved` receives it."""
        if self._proofs[request.sender] >= PROOFS_OF_PEER_MAX:
            return  # the peer asks again
        if isinstance(self._core.read_index(request), Refusal):
            self._respond(request, NOT_LEADING)
        else:
            self._proofs[request.sender] += 1

    def proved(self, request: ReadIndexRequest, index: int | None) -> None:
        """Answer a peer, with the index that the core has proved; None if it could not."""
        self._proofs[request.sender] -= 1
        self._respond(request, NOT_LEADING if index is None else index)

    def _respond(self, request: ReadIndexRequest, index: int) -> None:
        self._send(
            ReadIndexResponse(
                sender=request.receiver,
                receiver=request.sender,
                incarnation=request.incarnation,
                round=request.round,
                index=index,
            )
        )
