"""Committed entries on their way to the state machine: in log order, each exactly once.

A thread of its own reads and applies the entries, one bounded batch at a time, so that the event
loop is not blocked. Only that thread touches the machine while a batch is under way. Between two
batches the state is that of one index.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from dledger_formats.log import disk
from dledger_formats.log.disk import DamagedRecordError, EntryHeader
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.raft.yielding import Told
from dledger_node.state_machine import machines
from dledger_node.state_machine.catching_up import CatchingUp
from dledger_node.state_machine.machine import CommittedEntry, Make, StateMachine
from dledger_node.state_machine.restore import Applied, next_to_apply
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.snapshots.snapshots import Snapshots

BATCH_ENTRIES_MAX: Final = 4096
BATCH_BYTES_MAX: Final = 1 << 20


class StateCore(Protocol):
    """The core, as far as it tells and is told about the state."""

    @property
    def told(self) -> Told:
        """What a leader has told this member since its start."""

    def note_state(self, *, is_behind: bool) -> None:
        """Record whether the state is behind."""


class Applying:
    """Applies committed entries. Call its methods in the event loop's thread."""

    def __init__(
        self,
        name: str,
        applied: Applied,
        snapshots: Snapshots,
        store: LogStore,
        *,
        make: Make = machines.make,
        core: StateCore,
        fail: Callable[[BaseException], None],
        batch_entries_max: int = BATCH_ENTRIES_MAX,
    ) -> None:
        """`core` is told at once whether the state is behind. `fail` receives the error after which
        no further entry can be applied.
        """
        self.reading = threading.Lock()
        """Held while the thread reads the log, and while the whole log is replaced."""
        self._name, self._make = name, make
        self._applied = applied
        """The thread replaces it as a whole, so that index and machine always match."""
        self._snapshots = snapshots
        self._store = store
        self._core = core
        self._fail = fail
        self._batch_entries_max = batch_entries_max
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="state")
        self._batch: asyncio.Future[None] | None = None
        self._listeners: list[Callable[[int], None]] = []
        self._committed_index = -1
        self._tried_index = -1
        """The committed index when the last batch began."""
        self._catching_up = CatchingUp()
        core.note_state(is_behind=self.is_behind)
        self._closed = False

    @property
    def index(self) -> int:
        """Index up to which every entry is applied; -1 before the first."""
        return self._applied.index

    @property
    def machine(self) -> StateMachine:
        """The state machine. A batch may be under way in it."""
        return self._applied.machine

    @property
    def is_under_way(self) -> bool:
        """Whether a batch is under way: the machine may be ahead of `index`."""
        return self._batch is not None

    @property
    def is_behind(self) -> bool:
        """Whether what was committed at the start is still to be applied (`catching_up`)."""
        return self._catching_up.is_behind

    def call_when_applied(self, listener: Callable[[int], None]) -> None:
        """Call `listener` with the applied index after every batch."""
        self._listeners.append(listener)

    def on_turn(self, committed_index: int) -> None:
        """Apply the newly committed entries."""
        self._committed_index = max(self._committed_index, committed_index)
        self._watch()
        self._begin_batch()

    async def copy(self) -> Applied:
        """Return a copy of the state, taken between two batches."""
        return await self._loop.run_in_executor(self._thread, self._copy)

    async def close(self) -> None:
        """Begin no further batch; return once the one under way is done."""
        self._closed = True
        await asyncio.to_thread(self._thread.shutdown)

    # -- in the event loop's thread ----------------------------------------------------------------

    def _begin_batch(self) -> None:
        """Begin a batch, unless one is under way or no entry is to be applied."""
        if self._batch is not None or self._closed:
            return
        if self._committed_index > min(self._tried_index, self._applied.index):
            self._tried_index = self._committed_index
            self._batch = self._loop.run_in_executor(
                self._thread, self._apply_batch, self._committed_index
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
        self._watch(self._tried_index)
        for listener in self._listeners:
            listener(self._applied.index)
        self._begin_batch()

    def _watch(self, batch_target_index: int | None = None) -> None:
        """Note how far the state is, and whether a batch has ended; tell if this changes much."""
        state, applied_index = self._catching_up, self._applied.index
        was_behind = state.is_behind
        if batch_target_index is not None:
            state.note_batch(batch_target_index, applied_index)
        state.note_turn(
            self._committed_index, applied_index, self._store.end_index, self._core.told
        )
        if state.is_behind != was_behind:
            self._core.note_state(is_behind=state.is_behind)

    # -- in the state's thread ---------------------------------------------------------------------

    def _copy(self) -> Applied:
        applied = self._applied
        return Applied(machine=applied.machine.copy(), index=applied.index, term=applied.term)

    def _apply_batch(self, committed_index: int) -> None:
        """Apply one batch, from a snapshot on if the log lacks the next entry."""
        with self.reading:
            applied, last_index = next_to_apply(
                self._name,
                self._applied,
                committed_index,
                self._snapshots,
                self._store,
                self._make,
            )
            self._applied = applied
            if applied.index >= last_index:
                return
            runs, last_index = self._read(applied.index + 1, last_index)
        entries, last = entries_of(runs, applied.index + 1)
        applied.machine.apply(entries)
        self._applied = Applied(machine=applied.machine, index=last_index, term=last.term)

    def _read(self, first_index: int, last_index: int) -> tuple[list[bytes], int]:
        last_index = min(last_index, first_index + self._batch_entries_max - 1)
        return self._store.read_range(first_index, last_index, BATCH_BYTES_MAX)


def entries_of(runs: Sequence[bytes], first_index: int) -> tuple[list[CommittedEntry], EntryHeader]:
    """Return the entries that clients appended, and the header of the last entry of any kind.

    Raises StoreDamagedError if an entry is damaged: a failed flush, for example, may have lost it
    after it was written, and this thread keeps reading until the member is out of service.
    """
    index = first_index
    entries: list[CommittedEntry] = []
    for run in runs:
        at = 0
        while at < len(run):
            header = _checked(run, at, index)
            end = at + header.size
            if header.magic == disk.NORMAL:
                entries.append(CommittedEntry(header.index, run[at + disk.ENTRY_HEADER_SIZE : end]))
            at, index = end, index + 1
    return entries, header


def _checked(run: bytes, at: int, index: int) -> EntryHeader:
    try:
        header = disk.check_entry(run, at, len(run))
        if header.index != index:
            raise DamagedRecordError("bad_index", f"the header says entry {header.index}")
    except DamagedRecordError as error:
        raise StoreDamagedError(
            f"committed entry {index} cannot be applied: {error}", Damage.BAD_ENTRY, index
        ) from None
    return header
