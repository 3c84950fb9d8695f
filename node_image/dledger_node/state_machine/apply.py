"""Committed entries on their way to the state machine: in order, each once, behind the commit.

A thread of its own reads and applies them, a bounded batch at a time, so that the loop goes on. The
loop's side knows how far it is, and who waits for that. Nobody else touches the machine while a
batch is under way, and between two of them the state is that of one index.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from dledger_formats.log import disk
from dledger_formats.log.disk import DamagedRecordError, EntryHeader
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.state_machine.machine import CommittedEntry, StateMachine
from dledger_node.state_machine.restore import Applied, next_to_apply
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.snapshots.snapshots import Snapshots

BATCH_ENTRIES_MAX: Final = 4096
BATCH_BYTES_MAX: Final = 1 << 20
WAITERS_MAX: Final = 10_000
WAIT_S: Final = 2.0
"""Who waits longer for an entry to be applied is told so; Java clients give up after 3 s."""


class _Waiter(NamedTuple):
    committed_index: int
    deadline_s: float
    answer: Callable[[bool], None]


class Applying:
    """Applies what is committed. All methods are for the loop's thread."""

    def __init__(
        self,
        name: str,
        applied: Applied,
        snapshots: Snapshots,
        store: LogStore,
        *,
        fail: Callable[[BaseException], None],
    ) -> None:
        """`fail` is told what makes it impossible to go on."""
        self.reading = threading.Lock()
        """Held while the thread reads the log, and by whoever replaces all of it."""
        self._name = name
        self._applied = applied
        """Set by the thread, so that it and the machine are never of two indexes there."""
        self._snapshots = snapshots
        self._store = store
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="state")
        self._batch: asyncio.Future[None] | None = None
        self._waiters: deque[_Waiter] = deque()
        # By index, and by deadline: each asks for the committed index of its time.
        self._committed_index = -1
        self._looked_at_index = -1
        self._closed = False

    @property
    def index(self) -> int:
        """All up to here is applied; -1 before the first entry."""
        return self._applied.index

    @property
    def machine(self) -> StateMachine:
        """The state machine; a batch may be under way in it."""
        return self._applied.machine

    def settle(self, committed_index: int) -> None:
        """Apply what is committed by now; called after everything the core was given."""
        self._committed_index = max(self._committed_index, committed_index)
        self._go_on()
        if self._waiters:
            now_s = self._loop.time()
            while self._waiters and self._waiters[0].deadline_s <= now_s:
                self._waiters.popleft().answer(False)

    def wait(self, committed_index: int, answer: Callable[[bool], None]) -> None:
        """Call `answer` with True once all is applied up to the committed index, which may be now;
        with False when that takes too long, or too many wait.
        """
        if committed_index <= self._applied.index:
            answer(True)
        elif len(self._waiters) >= WAITERS_MAX:
            answer(False)
        else:
            deadline_s = self._loop.time() + WAIT_S
            self._waiters.append(_Waiter(committed_index, deadline_s, answer))

    async def copy(self) -> Applied:
        """The state as it is between two batches, to be kept."""
        return await self._loop.run_in_executor(self._thread, self._copy)

    async def close(self) -> None:
        """Apply no more; return once the batch under way is done."""
        self._closed = True
        while self._waiters:
            self._waiters.popleft().answer(False)
        await asyncio.to_thread(self._thread.shutdown)

    # -- the loop --------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Begin a batch, unless there is nothing to look at or one is under way."""
        if self._batch is not None or self._closed:
            return
        if self._committed_index > min(self._looked_at_index, self._applied.index):
            self._looked_at_index = self._committed_index
            self._batch = self._loop.run_in_executor(
                self._thread, self._apply_some, self._committed_index
            )
            self._batch.add_done_callback(self._done)

    def _done(self, batch: "asyncio.Future[None]") -> None:
        self._batch = None
        if batch.cancelled():
            return
        error = batch.exception()
        if error is not None:
            self._closed = True
            self._fail(error)
            return
        while self._waiters and self._waiters[0].committed_index <= self._applied.index:
            self._waiters.popleft().answer(True)
        self._go_on()

    # -- the thread ------------------------------------------------------------------------------

    def _copy(self) -> Applied:
        applied = self._applied
        return Applied(machine=applied.machine.copy(), index=applied.index, term=applied.term)

    def _apply_some(self, committed_index: int) -> None:
        """Apply a batch; where the log has lost what comes next, it goes on from a snapshot."""
        with self.reading:
            applied, last_index = next_to_apply(
                self._name, self._applied, committed_index, self._snapshots, self._store
            )
            self._applied = applied
            if applied.index >= last_index:
                return
            runs, last_index = self._read(applied.index + 1, last_index)
        entries, term = _entries(runs, applied.index + 1)
        applied.machine.apply(entries)
        self._applied = Applied(machine=applied.machine, index=last_index, term=term)

    def _read(self, first_index: int, last_index: int) -> tuple[list[bytes], int]:
        last_index = min(last_index, first_index + BATCH_ENTRIES_MAX - 1)
        return self._store.read_range(first_index, last_index, BATCH_BYTES_MAX)


def _entries(runs: list[bytes], first_index: int) -> tuple[list[CommittedEntry], int]:
    """The entries that clients have appended, and the term of the last of all.

    StoreDamagedError: what was written may have been lost since, by a flush that failed, say, and
    this thread reads on until the member is out of service.
    """
    index, term = first_index, -1
    entries: list[CommittedEntry] = []
    for run in runs:
        at = 0
        while at < len(run):
            header = _checked(run, at, index)
            end = at + header.size
            if header.magic == disk.NORMAL:
                entries.append(CommittedEntry(header.index, run[at + disk.ENTRY_HEADER_SIZE : end]))
            at, index, term = end, index + 1, header.term
    return entries, term


def _checked(run: bytes, at: int, index: int) -> EntryHeader:
    try:
        header = disk.check_entry(run, at, len(run))
        if header.index != index:
            raise DamagedRecordError("bad_index", f"entry {header.index}")
    except DamagedRecordError as error:
        raise StoreDamagedError(
            f"entry {index} is committed, and cannot be applied: {error}", Damage.BAD_ENTRY, index
        ) from None
    return header
