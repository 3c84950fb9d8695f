"""GET: committed entries, one by one or as many as fit, in the form that Java's client reads."""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from dledger_formats.protocol import requests
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.entry import DLedgerEntry
from dledger_node.raft.core import Raft
from dledger_node.remoting.connection_views import Reader
from dledger_node.remoting.read_turns import ReadTurns
from dledger_node.services.entries import EntryReads
from dledger_node.services.read_proofs import ReadProofs

Reply: TypeAlias = Callable[[requests.GetEntriesResponse], None]


class Gets:
    """Answers GET."""

    def __init__(
        self, core: Raft, entries: EntryReads, proofs: ReadProofs, *, group: str, turns: ReadTurns
    ) -> None:
        self._core = core
        self._entries = entries
        self._proofs = proofs
        self._group = group
        self._turns = turns

    def get(self, reader: Reader, request: requests.GetEntriesRequest, reply: Reply) -> None:
        """Answer a GET of a committed entry in the reader's turn, and any other after a proof."""

        def read() -> None:
            self._read(reader, request, reply)

        def answer(code: DLedgerResponseCode) -> None:
            proved = code is DLedgerResponseCode.SUCCESS
            self._turns.submit(reader, read if proved else lambda: reply(self._refused(code)))
            self._turns.release(reader)

        if request.begin_index <= self._core.readable_index:
            self._turns.submit(reader, read)
        else:
            self._turns.hold(reader)
            self._proofs.prove_read(request.consistency, answer)

    def _read(self, reader: Reader, request: requests.GetEntriesRequest, reply: Reply) -> None:
        """Read one entry, or as many as fit in `maxSize` bytes."""
        code = self._proofs.refuse(request.begin_index, request.consistency)
        if code is not None:
            reply(self._refused(code))
            return
        self._entries.read(
            reader,
            request.begin_index,
            self._core.readable_index,
            request.max_size,
            partial(self._answer, request, reply),
        )

    def _answer(
        self,
        request: requests.GetEntriesRequest,
        reply: Reply,
        entries: list[DLedgerEntry] | None,
    ) -> None:
        """Answer with what was read, unless the request must be refused by now."""
        code = self._proofs.refuse(request.begin_index, request.consistency)
        if code is not None:
            reply(self._refused(code))
        elif entries is None:
            # The answer names no leader, so that the client asks another member.
            unread = DLedgerResponseCode.NOT_LEADER
            reply(requests.GetEntriesResponse(code=unread, group=self._group))
        else:
            reply(requests.GetEntriesResponse(group=self._group, entries=entries))

    def _refused(self, code: DLedgerResponseCode) -> requests.GetEntriesResponse:
        return requests.GetEntriesResponse(
            code=code, group=self._group, leader_id=self._core.leader_id
        )
