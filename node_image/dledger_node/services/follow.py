"""FOLLOW: reads that may wait for an entry that is not committed yet.

At most a fixed number of requests wait. A further request releases the oldest, which is answered
without entries; its client then asks again. So no request is refused, and memory stays bounded.
"""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from dledger_formats.protocol import follow, frames
from dledger_formats.protocol.entry import DLedgerEntry
from dledger_formats.protocol.follow import FollowRequest, FollowResponse
from dledger_formats.protocol.requests import DLedgerResponseCode
from dledger_node.errors import StoreDamagedError
from dledger_node.raft.core import Raft
from dledger_node.remoting.read_turns import Reader, ReadTurns
from dledger_node.services.entries import read_entries
from dledger_node.services.refusals import Prove
from dledger_node.services.waiting import CommitWaiters, Waiter
from dledger_node.store.log.log_store import LogStore

FOLLOWERS_MAX: Final = 1024


class _Read(NamedTuple):
    """A request that is not answered yet."""

    connection: Reader
    opaque: int
    begin_index: int
    max_size: int


class Follows:
    """Answers FOLLOW, at once or when the entry is committed."""

    def __init__(
        self,
        core: Raft,
        store: LogStore,
        *,
        group: str,
        turns: ReadTurns,
        prove: Prove,
        waiters_max: int = FOLLOWERS_MAX,
    ) -> None:
        self._core = core
        self._store = store
        self._group = group
        self._turns = turns
        self._prove = prove
        self._loop = asyncio.get_running_loop()
        self._waiters = CommitWaiters[_Read](waiters_max)

    def follow(self, connection: Reader, opaque: int, request: FollowRequest) -> None:
        """Answer in the connection's turn, or once the entry is committed.

        An answer that says where the log ends waits for the proof that this member leads.
        """
        begin_index = request.begin_index
        read = _Read(connection, opaque, begin_index, request.max_size)
        if not self._core.master or 0 <= begin_index <= self._core.committed_index:
            self._submit([read])
            return
        if begin_index < 0 or request.wait_ms <= 0:
            self._prove(partial(self._proved, read))
            return
        if self._waiters.is_full:
            self._send([self._waiters.take_oldest()])
        wait_s = min(request.wait_ms, follow.WAIT_MS_MAX) / 1000
        deadline_s = self._loop.time() + wait_s
        self._waiters.add(Waiter([read], begin_index, self._core.term, deadline_s))

    def on_turn(self, committed_index: int) -> None:
        """Answer the reads whose entry is committed; all of them once this member does not lead."""
        core = self._core
        if self._waiters.count:
            leading_term = core.term if core.leads else None
            for waiters in self._waiters.release(committed_index, leading_term):
                self._send(waiters)

    def expire(self, now_s: float) -> None:
        """Answer the reads that have waited as long as their clients requested."""
        self._send(self._waiters.take_expired(now_s))

    def give_up(self) -> None:
        """Refuse every read that waits, without a look at the store: it may be what has failed."""
        refused = self._response(DLedgerResponseCode.NOT_LEADER, []).to_json()
        for waiter in self._waiters.take_all():
            for connection, opaque, *_ in waiter.replies:
                connection.send(frames.encode_responses([(opaque, refused)]))

    def _proved(self, read: _Read, code: DLedgerResponseCode) -> None:
        if code is DLedgerResponseCode.SUCCESS:
            self._submit([read])
            return
        refused = frames.encode_responses([(read.opaque, self._response(code, []).to_json())])
        self._turns.submit(read.connection, partial(read.connection.send, refused))

    def _send(self, waiters: Iterable[Waiter[_Read]]) -> None:
        """Answer the reads of these waiters."""
        self._submit([read for waiter in waiters for read in waiter.replies])

    def _submit(self, reads: Iterable[_Read]) -> None:
        """Answer reads in the turns of their connections; equal reads get the same bytes."""
        answers: dict[tuple[int, int], bytes] = {}

        def answer(read: _Read) -> None:
            key = (read.begin_index, read.max_size)
            if key not in answers:
                answers[key] = self._answer(*key).to_json()
            read.connection.send(frames.encode_responses([(read.opaque, answers[key])]))

        for read in reads:
            self._turns.submit(read.connection, partial(answer, read))

    def _answer(self, begin_index: int, max_size: int) -> FollowResponse:
        core = self._core
        code = DLedgerResponseCode.SUCCESS
        entries: list[DLedgerEntry] = []
        if not core.master:
            code = DLedgerResponseCode.NOT_LEADER
        elif 0 <= begin_index < core.ledger_begin_index:
            code = DLedgerResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN
        elif 0 <= begin_index <= core.committed_index:
            try:
                entries = read_entries(self._store, begin_index, core.committed_index, max_size)
            except StoreDamagedError:
                # The store keeps the damage it found; at the next tick this member leaves service.
                code = DLedgerResponseCode.NOT_LEADER
        return self._response(code, entries)

    def _response(self, code: DLedgerResponseCode, entries: list[DLedgerEntry]) -> FollowResponse:
        core = self._core
        return FollowResponse(
            code=code,
            group=self._group,
            leader_id=core.leader_id,
            term=core.term,
            entries=entries,
            ledger_begin_index=core.ledger_begin_index,
            committed_index=core.committed_index,
        )
