"""FOLLOW: reads that may wait for an entry that is not committed yet."""

from functools import partial
from typing import NamedTuple

from dledger_formats.protocol import frames
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.entry import DLedgerEntry
from dledger_formats.protocol.follow import FollowRequest, FollowResponse
from dledger_formats.protocol.requests import Consistency
from dledger_node.errors import StoreDamagedError
from dledger_node.raft.core import Raft
from dledger_node.remoting.read_turns import Reader, ReadTurns
from dledger_node.services.commit_waits import CommitWaits, WaitingRead
from dledger_node.services.entries import read_entries
from dledger_node.services.refusals import ProveRead
from dledger_node.store.log.log_store import LogStore


class _Read(NamedTuple):
    """A request that is not answered yet."""

    connection: Reader
    opaque: int
    begin_index: int
    max_size: int
    consistency: Consistency | None
    waits: bool = False
    """Whether it waits for its first entry, so that an answer without entries is no claim."""


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
        prove: ProveRead,
    ) -> None:
        self._core = core
        self._store = store
        self._group = group
        self._turns = turns
        self._waits = waits
        self._prove = prove
        self._last: tuple[tuple[object, ...], bytes] = ((), b"")
        """The last answer, for the readers that wait for the same entry, and what it depends on."""

    def follow(self, connection: Reader, opaque: int, request: FollowRequest) -> None:
        """Answer in the connection's turn, or once the entry is committed.

        An answer that says where the log ends waits for the proof that this member leads, or knows
        what its leader knows; a stale one does not.
        """
        core, begin_index, consistency = self._core, request.begin_index, request.consistency
        read = _Read(connection, opaque, begin_index, request.max_size, consistency)
        if consistency is None and not core.master:
            # it could become master before the connection's turn
            self._proved(read, DLedgerResponseCode.NOT_LEADER)
        elif self._is_due(request):
            self._submit(read)
        elif begin_index < 0 or request.wait_ms <= 0:
            self._prove(consistency, partial(self._proved, read))
        elif consistency is Consistency.LINEARIZABLE and core.leader_id is None:
            self._proved(read, DLedgerResponseCode.NOT_LEADER)
        else:
            read = read._replace(waits=True)
            refuse = partial(self._refuse, read, DLedgerResponseCode.NOT_LEADER)
            waiting = WaitingRead(partial(self._submit, read), refuse)
            is_stale = consistency is Consistency.STALE
            self._waits.wait(begin_index, request.wait_ms, waiting, stale=is_stale)

    def _is_due(self, request: FollowRequest) -> bool:
        """Tell whether there are entries, and a read that may wait is not to wait for more."""
        core, begin_index = self._core, request.begin_index
        if not 0 <= begin_index <= core.readable_index:
            return False
        is_lost = request.consistency is Consistency.LINEARIZABLE and core.leader_id is None
        return (
            request.wait_ms <= 0
            or is_lost
            or self._waits.admits(core.readable_index - begin_index + 1)
        )

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
        code = self._code(read)
        state = (core.term, core.leader_id, core.readable_index, core.ledger_begin_index)
        key = (read.begin_index, read.max_size, code, *state)
        if self._last[0] != key:
            self._last = (key, self._read(read.begin_index, read.max_size, code).to_json())
        read.connection.send(frames.encode_responses([(read.opaque, self._last[1])]))

    def _code(self, read: _Read) -> DLedgerResponseCode:
        core, begin_index = self._core, read.begin_index
        if read.consistency is None and not core.master:
            return DLedgerResponseCode.NOT_LEADER
        if 0 <= begin_index < core.ledger_begin_index:
            return DLedgerResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN
        if (
            read.waits
            and read.consistency is Consistency.LINEARIZABLE
            and begin_index > core.readable_index
            and core.leader_id is None
        ):
            return DLedgerResponseCode.NOT_LEADER  # no leader tells it of new entries
        return DLedgerResponseCode.SUCCESS

    def _read(self, begin_index: int, max_size: int, code: DLedgerResponseCode) -> FollowResponse:
        core = self._core
        entries: list[DLedgerEntry] = []
        if code is DLedgerResponseCode.SUCCESS and 0 <= begin_index <= core.readable_index:
            try:
                entries = read_entries(self._store, begin_index, core.readable_index, max_size)
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
            committed_index=core.readable_index,
        )
