"""FOLLOW: reads that may wait for an entry that is not committed yet."""

from functools import partial
from typing import NamedTuple

from dledger_formats.protocol import frames
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.entry import DLedgerEntry
from dledger_formats.protocol.follow import FollowRequest, FollowResponse
from dledger_node.errors import StoreDamagedError
from dledger_node.raft.core import Raft
from dledger_node.remoting.read_turns import Reader, ReadTurns
from dledger_node.services.commit_waits import CommitWaits, WaitingRead
from dledger_node.services.entries import read_entries
from dledger_node.services.refusals import Prove
from dledger_node.store.log.log_store import LogStore


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
        waits: CommitWaits,
        prove: Prove,
    ) -> None:
        self._core = core
        self._store = store
        self._group = group
        self._turns = turns
        self._waits = waits
        self._prove = prove
        self._last: tuple[tuple[int, ...], bytes] = ((), b"")
        """The last answer, for the readers that wait for the same entry, and what it depends on."""

    def follow(self, connection: Reader, opaque: int, request: FollowRequest) -> None:
        """Answer in the connection's turn, or once the entry is committed.

        An answer that says where the log ends waits for the proof that this member leads.
        """
        begin_index = request.begin_index
        read = _Read(connection, opaque, begin_index, request.max_size)
        if not self._core.master:  # it could become master before the connection's turn
            self._proved(read, DLedgerResponseCode.NOT_LEADER)
        elif 0 <= begin_index <= self._core.committed_index:
            self._submit(read)
        elif begin_index < 0 or request.wait_ms <= 0:
            self._prove(partial(self._proved, read))
        else:
            refuse = partial(self._refuse, read, DLedgerResponseCode.NOT_LEADER)
            waiting = WaitingRead(partial(self._submit, read), refuse)
            self._waits.wait(begin_index, request.wait_ms, waiting)

    def _proved(self, read: _Read, code: DLedgerResponseCode) -> None:
        if code is DLedgerResponseCode.SUCCESS:
            self._submit(read)
        else:
            self._turns.submit(read.connection, partial(self._refuse, read, code))

    def _refuse(self, read: _Read, code: DLedgerResponseCode) -> None:
        answer = self._response(code, []).to_json()
        read.connection.send(frames.encode_responses([(read.opaque, answer)]))

    def _submit(self, read: _Read) -> None:
        self._turns.submit(read.connection, partial(self._answer, read))

    def _answer(self, read: _Read) -> None:
        """Answer a read; consecutive equal reads get the same bytes."""
        core = self._core
        state = (core.term, core.master, core.committed_index, core.ledger_begin_index)
        key = (read.begin_index, read.max_size, *state)
        if self._last[0] != key:
            self._last = (key, self._read(read.begin_index, read.max_size).to_json())
        read.connection.send(frames.encode_responses([(read.opaque, self._last[1])]))

    def _read(self, begin_index: int, max_size: int) -> FollowResponse:
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
