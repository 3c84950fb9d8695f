"""FOLLOW: reads that may wait for an entry that is not committed yet."""

from functools import partial
from typing import NamedTuple

from dledger_formats.protocol import frames
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.entry import DLedgerEntry
from dledger_formats.protocol.follow import FollowRequest, FollowResponse
from dledger_formats.protocol.requests import Consistency
from dledger_node.raft.core import Raft
from dledger_node.remoting.connection_views import Reader
from dledger_node.remoting.read_turns import ReadTurns
from dledger_node.services.entries import EntryReads
from dledger_node.services.held_reads import HeldReads, WaitingRead
from dledger_node.services.refusals import ProveRead


class _Read(NamedTuple):
    """A request that is not answered yet."""

    connection: Reader
    opaque: int
    begin_index: int
    max_size: int
    consistency: Consistency | None
    waits: bool = False
    """Whether it waits for its first entry; an empty answer then does not need a proof."""


class Follows:
    """Answers FOLLOW, at once or when the entry is committed."""

    def __init__(
        self,
        core: Raft,
        entries: EntryReads,
        *,
        group: str,
        turns: ReadTurns,
        held: HeldReads,
        prove: ProveRead,
    ) -> None:
        self._core = core
        self._entries = entries
        self._group = group
        self._turns = turns
        self._held = held
        self._prove = prove
        self._last: tuple[tuple[object, ...], bytes] = ((), b"")
        """The last answer, for the readers that wait for the same entry, and what it depends on."""

    def follow(self, connection: Reader, opaque: int, request: FollowRequest) -> None:
        """Answer in the connection's turn, or once the entry is committed.

        An answer that says where the log ends waits for the proof that this member leads, or has
        committed what its leader has; a stale read does not wait.
        """
        core, begin_index, consistency = self._core, request.begin_index, request.consistency
        read = _Read(connection, opaque, begin_index, request.max_size, consistency)
        if consistency is None and not core.master:
            # it could become master before the connection's turn
            self._proved(read, DLedgerResponseCode.NOT_LEADER)
        elif self._is_due(request):
            self._submit(read)
        elif begin_index < 0 or request.wait_ms <= 0:
            self._turns.hold(connection)
            self._prove(consistency, partial(self._proof_ended, read))
        elif consistency is Consistency.LINEARIZABLE and core.leader_id is None:
            self._proved(read, DLedgerResponseCode.NOT_LEADER)
        else:
            read = read._replace(waits=True)
            refuse = partial(self._refuse, read, DLedgerResponseCode.NOT_LEADER)
            waiting = WaitingRead(partial(self._submit, read), refuse)
            is_stale = consistency is Consistency.STALE
            self._held.wait(begin_index, request.wait_ms, waiting, stale=is_stale)

    def _is_due(self, request: FollowRequest) -> bool:
        """Return whether there are entries, and the read is not to wait for more."""
        core, begin_index = self._core, request.begin_index
        if not 0 <= begin_index <= core.readable_index:
            return False
        is_lost = request.consistency is Consistency.LINEARIZABLE and core.leader_id is None
        return (
            request.wait_ms <= 0
            or is_lost
            or self._held.admits(core.readable_index - begin_index + 1)
        )

    def _proof_ended(self, read: _Read, code: DLedgerResponseCode) -> None:
        self._proved(read, code)
        self._turns.release(read.connection)

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
        code, last_index = self._code(read), self._core.readable_index
        if self._last[0] == self._key(read, code):
            read.connection.send(frames.encode_responses([(read.opaque, self._last[1])]))
        elif code is DLedgerResponseCode.SUCCESS and 0 <= read.begin_index <= last_index:
            self._entries.read(
                read.connection,
                read.begin_index,
                last_index,
                read.max_size,
                partial(self._answer_with, read),
            )
        else:
            self._answer_with(read, [])

    def _answer_with(self, read: _Read, entries: list[DLedgerEntry] | None) -> None:
        """Answer with these entries, unless the read must be refused by now.

        `entries` is None if they cannot be read.
        """
        code = self._code(read)
        if code is DLedgerResponseCode.SUCCESS and entries is None:
            self._refuse(read, DLedgerResponseCode.NOT_LEADER)
            return
        served = entries if code is DLedgerResponseCode.SUCCESS and entries else []
        self._last = (self._key(read, code), self._response(code, served).to_json())
        read.connection.send(frames.encode_responses([(read.opaque, self._last[1])]))

    def _key(self, read: _Read, code: DLedgerResponseCode) -> tuple[object, ...]:
        """Return what an answer depends on."""
        core = self._core
        state = (core.term, core.leader_id, core.readable_index, core.ledger_begin_index)
        return (read.begin_index, read.max_size, code, *state)

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
            return DLedgerResponseCode.NOT_LEADER  # no leader sends it new entries
        return DLedgerResponseCode.SUCCESS

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
