"""GET: committed entries, and the proof that there are no more.

An entry that is committed never changes. But a leader that was deposed without knowing would say
"out of range" of an entry that another has acknowledged since; so that answer waits until the core
has proved that this member still leads. So do other answers of that kind (`prove`).
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from dledger_formats.protocol import requests
from dledger_formats.protocol.requests import DLedgerResponseCode
from dledger_node.errors import StoreDamagedError
from dledger_node.raft.core import Raft
from dledger_node.raft.ready import ReadState
from dledger_node.services.entries import read_entries
from dledger_node.store.log.log_store import LogStore

END_READS_MAX: Final = 10_000
"""How many may wait for a proof; the same as Java's limit of pending requests."""

Reply = Callable[[requests.GetEntriesResponse], None]


class Reads:
    """The reads of one member's clients."""

    def __init__(
        self,
        core: Raft,
        store: LogStore,
        *,
        group: str,
        drive: Callable[[Callable[[], None]], None],
    ) -> None:
        self._core = core
        self._store = store
        self._group = group
        self._drive = drive
        self._waiting_count = 0
        self._proved: deque[ReadState] = deque()

    def get(self, request: requests.GetEntriesRequest, reply: Reply) -> None:
        """Answer at once what is committed here, and later what is not."""
        if not self._core.master or request.begin_index <= self._core.committed_index:
            reply(self._read(request))
            return

        def answer(code: DLedgerResponseCode) -> None:
            proved = code is DLedgerResponseCode.SUCCESS
            reply(self._read(request) if proved else self._refused(code))

        self.prove(answer)

    def prove(self, answer: Callable[[DLedgerResponseCode], None]) -> None:
        """Call `answer` with SUCCESS once this member is known to have led after this call, with
        all committed that was acknowledged before it; with NOT_LEADER when that cannot be, or
        LEADER_PENDING_FULL.
        """
        if self._waiting_count >= END_READS_MAX:
            answer(DLedgerResponseCode.LEADER_PENDING_FULL)
            return
        self._waiting_count += 1
        self._drive(lambda: self._begin(answer))

    def proved(self, reads: Iterable[ReadState]) -> None:
        """Take what the core has released."""
        self._proved.extend(reads)

    def settle(self, committed_index: int) -> None:
        """Answer what is proved and committed; called after everything the core was given."""
        if not self._proved:
            return
        leads = self._core.leads
        while self._proved:
            read = self._proved[0]
            if leads and read.index is not None and read.index > committed_index:
                return
            self._proved.popleft()
            self._waiting_count -= 1
            assert callable(read.handle)
            proved = leads and read.index is not None
            read.handle(DLedgerResponseCode.SUCCESS if proved else DLedgerResponseCode.NOT_LEADER)

    def _begin(self, answer: Callable[[DLedgerResponseCode], None]) -> None:
        if self._core.read_index(answer) is not None:
            self._waiting_count -= 1
            answer(DLedgerResponseCode.NOT_LEADER)

    def _read(self, request: requests.GetEntriesRequest) -> requests.GetEntriesResponse:
        """One entry, or as many as `maxSize` bytes hold."""
        code = self._refuse(request.begin_index)
        if code is not None:
            return self._refused(code)
        last_index = self._core.committed_index
        try:
            entries = read_entries(self._store, request.begin_index, last_index, request.max_size)
        except StoreDamagedError:
            # The store keeps what it found, and with the next tick this member is out of service.
            return requests.GetEntriesResponse(
                code=DLedgerResponseCode.NOT_LEADER, group=self._group
            )
        return requests.GetEntriesResponse(group=self._group, entries=entries)

    def _refuse(self, index: int) -> DLedgerResponseCode | None:
        """Why a read is refused; None when it is not.

        A leader serves what it knows to be committed also before its own first entry is, which no
        group can commit whose volumes are full. What comes after, it does not know yet.
        """
        core = self._core
        if not core.leads:
            return DLedgerResponseCode.NOT_LEADER
        if 0 <= index < core.ledger_begin_index:
            return DLedgerResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN
        if index < 0 or (core.master and index > core.committed_index):
            return DLedgerResponseCode.INDEX_OUT_OF_RANGE
        return None if index <= core.committed_index else DLedgerResponseCode.NOT_LEADER

    def _refused(self, code: DLedgerResponseCode) -> requests.GetEntriesResponse:
        return requests.GetEntriesResponse(
            code=code, group=self._group, leader_id=self._core.leader_id
        )
