"""Readers that wait for entries which are not committed yet (FOLLOW).

At most WAITERS_MAX wait. One more makes the oldest be answered without entries, which tells it to
ask again: so nobody is refused, and nothing grows.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dledger_formats.protocol import follow, frames
from dledger_formats.protocol.entry import DLedgerEntry
from dledger_formats.protocol.follow import FollowRequest, FollowResponse
from dledger_formats.protocol.requests import DLedgerResponseCode
from dledger_node.raft.core import Raft
from dledger_node.remoting.service import Caller
from dledger_node.services.entries import read_entries
from dledger_node.store.log.log_store import LogStore

WAITERS_MAX: Final = 1024


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    """A request that is not answered yet."""

    connection: Caller
    opaque: int
    begin_index: int
    max_size: int
    deadline_s: float


class Follows:
    """Answers FOLLOW, at once or when there is something to tell."""

    def __init__(self, core: Raft, store: LogStore, *, group: str) -> None:
        self._core = core
        self._store = store
        self._group = group
        self._loop = asyncio.get_running_loop()
        # Oldest first. Invariant: no waiter's begin_index is below _lowest_index.
        self._waiters: OrderedDict[_Waiter, None] = OrderedDict()
        self._lowest_index = 0

    def take(
        self, connection: Caller, opaque: int, request: FollowRequest
    ) -> FollowResponse | None:
        """Return the answer, or None when it will be sent later."""
        begin_index = request.begin_index
        if (
            not self._core.master
            or begin_index <= self._core.committed_index
            or request.wait_ms <= 0
        ):
            return self._answer(begin_index, request.max_size)
        if len(self._waiters) >= WAITERS_MAX:
            self._send([next(iter(self._waiters))])
        wait_s = min(request.wait_ms, follow.WAIT_MS_MAX) / 1000
        waiter = _Waiter(
            connection, opaque, begin_index, request.max_size, self._loop.time() + wait_s
        )
        self._lowest_index = min(self._lowest_index, begin_index) if self._waiters else begin_index
        self._waiters[waiter] = None
        return None

    def settle(self) -> None:
        """Answer those whose entry is committed by now, or all when this member leads no more."""
        if not self._waiters:
            return
        committed_index = self._core.committed_index
        if not self._core.master:
            self._send(list(self._waiters))
        elif self._lowest_index <= committed_index:
            self._send([w for w in self._waiters if w.begin_index <= committed_index])
            self._lowest_index = min((w.begin_index for w in self._waiters), default=0)

    def expire(self) -> None:
        """Answer those that have waited as long as they wished."""
        if self._waiters:
            now_s = self._loop.time()
            self._send([waiter for waiter in self._waiters if waiter.deadline_s <= now_s])

    def _send(self, waiters: Iterable[_Waiter]) -> None:
        """Answer waiters; those that wait for the same get the same bytes."""
        answers: dict[tuple[int, int], bytes] = {}
        for waiter in waiters:
            del self._waiters[waiter]
            key = (waiter.begin_index, waiter.max_size)
            if key not in answers:
                answers[key] = self._answer(*key).to_json()
            waiter.connection.send(frames.encode_responses([(waiter.opaque, answers[key])]))

    def _answer(self, begin_index: int, max_size: int) -> FollowResponse:
        core = self._core
        code = DLedgerResponseCode.SUCCESS
        entries: list[DLedgerEntry] = []
        if not core.master:
            code = DLedgerResponseCode.NOT_LEADER
        elif 0 <= begin_index < core.ledger_begin_index:
            code = DLedgerResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN
        elif 0 <= begin_index <= core.committed_index:
            entries = read_entries(self._store, begin_index, core.committed_index, max_size)
        return FollowResponse(
            code=code,
            group=self._group,
            leader_id=core.leader_id,
            term=core.term,
            entries=entries,
            ledger_begin_index=core.ledger_begin_index,
            committed_index=core.committed_index,
        )
