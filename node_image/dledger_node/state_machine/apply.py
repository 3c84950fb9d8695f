"""Committed entries on their way to the state machine: in log order, each exactly once.

The event loop itself applies a few short entries that are in memory: handing them to a thread and
waiting for its result costs more than applying them. All others are read and applied by a separate
thread, one bounded batch at a time. Only that thread touches the machine while a batch or a copy is
under way. Between two batches the state is that of one index.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple, Protocol

from dledger_formats.log import disk
from dledger_formats.log.disk import DamagedRecordError, EntryHeader
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.raft.yielding import ReportedCommit
from dledger_node.state_machine import machines
from dledger_node.state_machine.catching_up import CatchingUp
from dledger_node.state_machine.machine import CommittedEntry, Make, StateMachine
from dledger_node.state_machine.restore import Applied, next_to_apply
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.log.stored_range import RangeMovedError
from dledger_node.store.snapshots.snapshots import Snapshots

BATCH_ENTRIES_MAX: Final = 4096
BATCH_BYTES_MAX: Final = 1 << 20
MENDING_TIMEOUT_S: Final = 60.0
"""How long the state waits for a damaged entry to be mended. Then the member stops."""
MENDING_POLL_S: Final = 0.1
LOOP_ENTRIES_MAX: Final = 32
LOOP_BYTES_MAX: Final = 128 * 1024
"""The most that the event loop applies in one turn."""
MENDABLE: Final = frozenset({Damage.BAD_ENTRY, Damage.UNREADABLE})
"""Damage of entries, which the scrubber mends in service."""


class Run(NamedTuple):
    """Consecutive entries."""

    first_index: int
    entries: Sequence[CommittedEntry]
    """The entries that clients appended."""
    last: EntryHeader
    """The header of the last entry of any kind."""


class StateCore(Protocol):
    """The part of the core that deals with the state."""

    @property
    def reported_commit(self) -> ReportedCommit:
        """What a leader has reported to this member since its start."""

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
        """`core` is notified at once whether the state is behind. `fail` receives the error after
        which no further entry can be applied.
        """
        self.reading = threading.Lock()
        """Held while the thread reads the log, and while the whole log is replaced."""
        self._name, self._make = name, make
        self._applied = applied
        """Replaced as a whole, so that index and machine always match."""
        self._snapshots = snapshots
        self._store = store
        self._core = core
        self._fail = fail
        self._batch_entries_max = batch_entries_max
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="state")
        self._batch: asyncio.Future[None] | None = None
        """The batch that the thread is applying."""
        self.just_applied: Run | None = None
        """The entries that the event loop has just applied, while the listeners are called."""
        self._soon: asyncio.Handle | None = None
        """The scheduled call that applies entries in the event loop, before its next turn."""
        self._copying: set[Future[Applied]] = set()
        """Copies that are not made yet; each leaves this set in the thread that made it."""
        self._agreed_generation = -1
        """The log's generation when its last applied entry was compared with the state's."""
        self._listeners: list[Callable[[int], None]] = []
        self._committed_index = -1
        self._tried_index = -1
        """The committed index when the last batch began."""
        self._mending: asyncio.TimerHandle | None = None
        """The timer of the next attempt, while a damaged entry is being mended."""
        self._mending_until_s: float | None = None
        """The deadline for the mending; None if the last batch found no damage."""
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
        """Whether the thread is applying a batch: the machine may be ahead of `index`."""
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
        # The thread completes a copy even if nobody waits for it any longer.
        copying = self._thread.submit(self._copy)
        self._copying.add(copying)
        copying.add_done_callback(self._copying.discard)
        return await asyncio.wrap_future(copying)

    async def close(self) -> None:
        """Begin no further batch; return once the one under way is done."""
        self._closed = True
        if self._mending is not None:
            self._mending.cancel()
        await asyncio.to_thread(self._thread.shutdown)

    # -- in the event loop's thread ----------------------------------------------------------------

    def _begin_batch(self) -> None:
        """Begin a batch, unless one is under way or there is nothing to apply."""
        is_waiting = self._batch is not None or self._soon is not None or self._mending is not None
        if is_waiting or self._closed:
            return
        if self._committed_index > min(self._tried_index, self._applied.index):
            if self._committed_index - self._applied.index <= LOOP_ENTRIES_MAX:
                self._soon = self._loop.call_soon(self._apply_soon)
            else:
                self._begin_in_thread()

    def _begin_in_thread(self) -> None:
        self._tried_index = self._committed_index
        self._batch = self._loop.run_in_executor(
            self._thread, self._apply_batch, self._committed_index
        )
        self._batch.add_done_callback(self._done)

    def _done(self, batch: "asyncio.Future[None]") -> None:
        self._batch = None
        if not batch.cancelled():
            self._ended(batch.exception())

    def _ended(self, error: BaseException | None) -> None:
        """Report that a batch has ended, and begin the next one."""
        if isinstance(error, StoreDamagedError) and self._may_be_mended(error):
            self._store.damage = self._store.damage or error
            self._try_again_later()
            return
        if error is not None:
            self._closed = True
            self._fail(error)
            return
        self._mending_until_s = None
        self._watch(self._tried_index)
        for listener in self._listeners:
            listener(self._applied.index)
        self._begin_batch()

    def _may_be_mended(self, damage: StoreDamagedError) -> bool:
        """Return whether peers may supply the damaged entry: it was durable, and is committed.

        A later entry may have been lost by a failed flush.
        """
        checkpoint = self._store.checkpoints.last
        if checkpoint is None or damage.index is None or damage.damage not in MENDABLE:
            return False
        now_s = self._loop.time()
        if self._mending_until_s is None:
            self._mending_until_s = now_s + MENDING_TIMEOUT_S
        return damage.index <= checkpoint.committed_index and now_s < self._mending_until_s

    def _try_again_later(self) -> None:
        if not self._closed:
            self._mending = self._loop.call_later(MENDING_POLL_S, self._try_again)

    def _try_again(self) -> None:
        """Begin a batch if the damage is mended; after the deadline, the batch stops the member."""
        assert self._mending_until_s is not None
        if self._store.damage is not None and self._loop.time() < self._mending_until_s:
            self._try_again_later()
            return
        self._mending = None
        self._begin_batch()

    def _apply_soon(self) -> None:
        """Apply the entries here if they are in memory and quick to apply; else in the thread."""
        self._soon = None
        if self._closed:
            return
        applied = self._applied
        data = self._run_in_memory(applied.index + 1)
        run = None if data is None else self._quick_run(applied, data)
        if run is None:
            self._begin_in_thread()
            return
        self._tried_index = self._committed_index
        try:
            self._apply(applied, run)
        except Exception as error:  # the machine's error, handled as in the thread
            self._ended(error)
            return
        self.just_applied = run
        try:
            self._ended(None)
        finally:
            self.just_applied = None

    def _quick_run(self, applied: Applied, data: bytes) -> Run | None:
        """Return these entries if they are sound, and the machine can apply them quickly."""
        first_index = applied.index + 1
        try:
            run = Run(first_index, *entries_of([data], first_index))
        except StoreDamagedError:
            return None  # the thread decides what to do about it
        return run if applied.machine.is_quick(run.entries) else None

    def _run_in_memory(self, first_index: int) -> bytes | None:
        """Return the entries to apply next; None if that is the thread's work."""
        store, last_index = self._store, min(self._committed_index, self._store.end_index)
        if (
            not first_index <= last_index < first_index + LOOP_ENTRIES_MAX
            or last_index >= first_index + self._batch_entries_max
            or self._agreed_generation != store.generation
            or self._copying
            or not self.reading.acquire(blocking=False)
        ):
            return None
        try:
            return store.cached_run(first_index, last_index, LOOP_BYTES_MAX)
        except (RangeMovedError, StoreDamagedError):
            return None  # the thread decides what to do about it
        finally:
            self.reading.release()

    def _watch(self, batch_target_index: int | None = None) -> None:
        """Note how far the state is, and whether a batch has ended; notify the core of a change."""
        state, applied_index = self._catching_up, self._applied.index
        was_behind = state.is_behind
        if batch_target_index is not None:
            state.note_batch(batch_target_index, applied_index)
        state.note_turn(
            self._committed_index, applied_index, self._store.end_index, self._core.reported_commit
        )
        if state.is_behind != was_behind:
            self._core.note_state(is_behind=state.is_behind)

    # -- in the state's thread ---------------------------------------------------------------------

    def _copy(self) -> Applied:
        applied = self._applied
        return Applied(machine=applied.machine.copy(), index=applied.index, term=applied.term)

    def _apply_batch(self, committed_index: int) -> None:
        """Apply one batch; if the log lacks the next entry, continue from a snapshot."""
        with self.reading:
            generation = self._store.generation
            applied, last_index = next_to_apply(
                self._name,
                self._applied,
                committed_index,
                self._snapshots,
                self._store,
                self._make,
            )
            self._applied, self._agreed_generation = applied, generation
            if applied.index >= last_index:
                return
            runs, last_index = self._read(applied.index + 1, last_index)
        self._apply(applied, Run(applied.index + 1, *entries_of(runs, applied.index + 1)))

    def _read(self, first_index: int, last_index: int) -> tuple[list[bytes], int]:
        last_index = min(last_index, first_index + self._batch_entries_max - 1)
        return self._store.read_range(first_index, last_index, BATCH_BYTES_MAX)

    # -- in either thread --------------------------------------------------------------------------

    def _apply(self, applied: Applied, run: Run) -> None:
        """Apply the entries after `applied`."""
        applied.machine.apply(run.entries)
        self._applied = Applied(machine=applied.machine, index=run.last.index, term=run.last.term)


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
