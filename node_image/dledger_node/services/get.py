"""GET: committed entries, and the proof that the log ends after them.

A committed entry never changes. But a leader that does not know yet that it was deposed would
answer "out of range" for an entry that the new leader has acknowledged. So that answer waits until
the core has proved that this member still leads. Other services use this proof (`Reads.prove`).
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from dledger_formats.protocol import requests
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_node.errors import StoreDamagedError
from dledger_node.raft.core import Raft
from dledger_node.raft.ready import ReadState
from dledger_node.remoting.read_turns import Reader, ReadTurns
from dledger_node.services.entries import read_entries
from dledger_node.services.waiting import Answer, CommitWaiters, Waiter, answer_all
from dledger_node.store.log.log_store import LogStore

PROOFS_MAX: Final = 10_000
"""Requests that may wait for a proof; the same as Java's limit of pending requests."""

Reply: TypeAlias = Callable[[requests.GetEntriesResponse], None]


class Reads:
    """Answers GET, and proves to other services that this member leads."""

    def __init__(
        self,
        core: Raft,
        store: LogStore,
        *,
        group: str,
        turns: ReadTurns,
        drive: Callable[[Callable[[], None]], None],
    ) -> None:
        """`drive` gives the core an input and runs the resulting work."""
        self._core = core
        self._store = store
        self._group = group
        self._turns = turns
        self._drive = drive
        self._in_core_count = 0
        """Requests for a proof that the core has not answered."""
        self._proved = CommitWaiters[Answer](PROOFS_MAX)
        """Requests with a proof, until their read index is committed."""
        self._unproved: list[Answer] = []
        """Requests that the core could not prove, until the end of the turn."""

    def get(self, reader: Reader, request: requests.GetEntriesRequest, reply: Reply) -> None:
        """Answer a GET of a committed entry in the reader's turn, and any other after a proof.

        A member that is not master yet refuses any other at once: it could become master before
        the reader's turn, and would then answer without a proof.
        """

        def read() -> None:
            reply(self._read(request))

        def answer(code: DLedgerResponseCode) -> None:
            proved = code is DLedgerResponseCode.SUCCESS
            self._turns.submit(reader, read if proved else lambda: reply(self._refused(code)))

        if request.begin_index <= self._core.committed_index:
            self._turns.submit(reader, read)
        elif self._core.master:
            self.prove(answer)
        else:
            answer(DLedgerResponseCode.NOT_LEADER)

    def prove(self, answer: Answer) -> None:
        """Call `answer` once with a code.

        SUCCESS: this member was the leader after this call, and has committed every entry that was
        acknowledged before the call. NOT_LEADER: it stopped leading. LEADER_PENDING_FULL: too many
        requests are waiting.
        """
        if self._in_core_count + self._proved.count >= PROOFS_MAX:
            answer(DLedgerResponseCode.LEADER_PENDING_FULL)
            return
        self._in_core_count += 1
        self._drive(lambda: self._begin(answer))

    def refuse(self, index: int) -> DLedgerResponseCode | None:
        """Return the code with which a read is refused, or None.

        A leader serves the entries that it knows to be committed even before its own first entry is
        committed, because a group whose volumes are full cannot commit one. It does not serve later
        entries until then.
        """
        core = self._core
        if not core.leads:
            return DLedgerResponseCode.NOT_LEADER
        if 0 <= index < core.ledger_begin_index:
            return DLedgerResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN
        if index < 0 or (core.master and index > core.committed_index):
            return DLedgerResponseCode.INDEX_OUT_OF_RANGE
        return None if index <= core.committed_index else DLedgerResponseCode.NOT_LEADER

    def proved(self, reads: Iterable[ReadState]) -> None:
        """Take the reads that the core has released. They are answered at the end of the turn."""
        for read in reads:
            self._in_core_count -= 1
            assert callable(read.handle)
            if read.index is None:
                self._unproved.append(read.handle)
            else:
                self._proved.add(Waiter([read.handle], read.index, self._core.term))

    def on_turn(self, committed_index: int) -> None:
        """Answer the requests that are proved and whose read index is committed."""
        if not (self._proved.count or self._unproved):
            return
        core = self._core
        leading_term = core.term if core.leads else None
        committed, unknown = self._proved.release(committed_index, leading_term)
        answer_all(committed, DLedgerResponseCode.SUCCESS)
        answer_all(unknown, DLedgerResponseCode.NOT_LEADER)
        unproved, self._unproved = self._unproved, []
        for answer in unproved:
            answer(DLedgerResponseCode.NOT_LEADER)

    def expire(self, now_s: float) -> None:
        """Do nothing: a leader that cannot prove that it leads steps down, which answers reads."""

    def give_up(self) -> None:
        """Refuse every proved request that waits."""
        answer_all(self._proved.take_all(), DLedgerResponseCode.NOT_LEADER)

    def _begin(self, answer: Answer) -> None:
        if self._core.read_index(answer) is not None:
            self._in_core_count -= 1
            answer(DLedgerResponseCode.NOT_LEADER)

    def _read(self, request: requests.GetEntriesRequest) -> requests.GetEntriesResponse:
        """Read one entry, or as many as fit in `maxSize` bytes."""
        code = self.refuse(request.begin_index)
        if code is not None:
            return self._refused(code)
        last_index = self._core.committed_index
        try:
            entries = read_entries(self._store, request.begin_index, last_index, request.max_size)
        except StoreDamagedError:
            # The store keeps the damage it found; at the next tick this member leaves service.
            return requests.GetEntriesResponse(
                code=DLedgerResponseCode.NOT_LEADER, group=self._group
            )
        return requests.GetEntriesResponse(group=self._group, entries=entries)

    def _refused(self, code: DLedgerResponseCode) -> requests.GetEntriesResponse:
        return requests.GetEntriesResponse(
            code=code, group=self._group, leader_id=self._core.leader_id
        )
