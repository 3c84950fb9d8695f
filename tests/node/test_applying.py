"""Committed entries reach the state machine in order, each exactly once, at any pace."""

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dledger_formats.log import disk
from dledger_formats.protocol.register import SET
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.raft.yielding import ReportedCommit
from dledger_node.state_machine import apply
from dledger_node.state_machine.apply import Applying
from dledger_node.state_machine.machine import CommittedEntry
from dledger_node.state_machine.register import Register
from dledger_node.state_machine.restore import Applied, restore
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.snapshots.snapshots import Snapshots
from dledger_wire.listener import until

ENTRIES = 300


class Counting(Register):
    """A register that also keeps the indexes of the entries it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.indexes: list[int] = []
        self.threads: list[str] = []
        """Where each batch was applied."""
        self.broken: Exception | None = None
        self.quick = True

    def is_quick(self, _: Sequence[CommittedEntry]) -> bool:
        return self.quick

    def apply(self, entries: Sequence[CommittedEntry]) -> None:
        if self.broken is not None:
            raise self.broken
        self.threads.append(threading.current_thread().name)
        self.indexes += [entry.index for entry in entries]
        super().apply(entries)


class Stage:
    """A log and the state that is applied from it."""

    def __init__(self, folder: Path, known_index: int = ENTRIES - 1) -> None:
        """The checkpoint knows the entries up to `known_index` as committed."""
        self.store = LogStore.open(folder, segment_size_bytes=4096, index_segment_size_bytes=320)
        self.store.append_noop(1)
        self.store.append_bodies([SET.pack(k % 10, k) for k in range(1, ENTRIES)], 1)
        target = self.store.flush_target()
        self.store.flush(target)
        self.store.flushed(target)
        self.store.save_checkpoint(known_index)
        self.snapshots = Snapshots(folder, reserved=3)
        self.machine = Counting()
        self.failed: asyncio.Queue[BaseException] = asyncio.Queue()
        self.reported_commit = ReportedCommit(index=-1, is_settled=False)
        self.noted: list[bool] = []
        """What the core was told about the state."""
        self.applying = self.begin(Applied(machine=self.machine))

    def begin(self, applied: Applied, batch_entries_max: int = 4096) -> Applying:
        return Applying(
            "register",
            applied,
            self.snapshots,
            self.store,
            core=self,
            fail=self.failed.put_nowait,
            batch_entries_max=batch_entries_max,
        )

    def note_state(self, *, is_behind: bool) -> None:
        self.noted.append(is_behind)

    async def in_batches_of(self, count: int) -> None:
        """Begin again, with a bound on the entries of a batch."""
        await self.applying.close()
        self.applying = self.begin(Applied(machine=self.machine), count)

    async def reach(self, index: int) -> None:
        """Commit up to an entry and wait until it is applied."""
        self.applying.on_turn(index)
        await until(lambda: self.applying.index >= index)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(tmp_path)
    yield made
    await made.applying.close()
    made.store.close()


@pytest.mark.parametrize("batch", [1, 7, 4096])
@pytest.mark.parametrize("steps", [[299], [0, 1, 5, 150, 299], [*range(0, 300, 13), 299]])
async def test_any_pace_and_any_batches_give_one_state(
    stage: Stage, batch: int, steps: list[int]
) -> None:
    await stage.in_batches_of(batch)
    for index in steps:
        await stage.reach(index)

    assert stage.machine.indexes == list(range(1, ENTRIES)), "each once, and no entry of a leader"
    assert [stage.machine.get(key) for key in range(10)] == [*range(290, 300)]
    assert stage.applying.index == ENTRIES - 1


@pytest.mark.parametrize("content", [bytes(512), bytes([7]) * 512])
async def test_an_entry_that_was_lost_after_it_was_written_is_not_applied(
    tmp_path: Path, content: bytes
) -> None:
    """A failed flush may lose entries. The thread read zeros forever, and nothing stopped it."""
    stage = Stage(tmp_path, known_index=0)
    stage.store._files.data.files[1].write(512, content)

    stage.applying.on_turn(ENTRIES - 1)

    error = await asyncio.wait_for(stage.failed.get(), 30)
    assert isinstance(error, StoreDamagedError)
    assert error.damage is Damage.BAD_ENTRY
    assert stage.machine.indexes == list(range(1, len(stage.machine.indexes) + 1))
    await stage.applying.close()
    stage.store.close()


async def test_the_core_is_told_at_once_when_the_state_has_caught_up(stage: Stage) -> None:
    """A tick may come later than the request of a leader that this member takes over."""
    stage.reported_commit = ReportedCommit(index=ENTRIES - 1, is_settled=True)
    told: list[bool] = []
    stage.applying.call_when_applied(lambda index: told.append(stage.noted[-1]))

    stage.applying.on_turn(ENTRIES - 1)
    await until(lambda: bool(told))

    assert told == [False]
    assert stage.noted == [True, False]


async def test_nothing_is_applied_that_is_not_committed(stage: Stage) -> None:
    await stage.reach(50)

    assert stage.machine.indexes[-1] == 50
    assert stage.applying.index == 50


async def test_a_copy_holds_the_state_of_its_index(stage: Stage) -> None:
    await stage.in_batches_of(3)
    stage.applying.on_turn(ENTRIES - 1)
    copies = [await stage.applying.copy() for _ in range(20)]
    await stage.reach(ENTRIES - 1)

    for copy in copies:
        expected = Register()
        bodies = (stage.store.entry(index) for index in range(copy.index + 1))
        expected.apply(
            [CommittedEntry(h.index, body) for h, body in bodies if h.magic == disk.NORMAL]
        )
        assert b"".join(copy.machine.dump()) == b"".join(expected.dump())


def in_loop(stage: Stage) -> bool:
    """Whether the last batch was applied in the event loop."""
    return stage.machine.threads[-1] == threading.current_thread().name


async def test_a_few_entries_in_memory_are_applied_in_the_event_loop(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "LOOP_ENTRIES_MAX", 4)
    await stage.reach(100)
    assert not in_loop(stage), "these are many"
    await stage.reach(101)
    assert in_loop(stage)
    await stage.reach(105)
    assert in_loop(stage)
    await stage.reach(110)
    assert not in_loop(stage)


async def test_entries_of_two_files_are_applied_in_the_thread(stage: Stage) -> None:
    """An index file of this log has ten entries."""
    await stage.reach(107)
    await stage.reach(108)
    assert in_loop(stage)
    await stage.reach(111)
    assert not in_loop(stage)
    await stage.reach(112)
    assert in_loop(stage)


async def test_long_entries_are_applied_in_the_thread(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "LOOP_BYTES_MAX", 2 * (disk.ENTRY_HEADER_SIZE + SET.size))
    await stage.reach(100)
    await stage.reach(102)
    assert in_loop(stage)
    await stage.reach(105)
    assert not in_loop(stage)


async def test_a_machine_is_never_changed_while_it_is_copied(stage: Stage) -> None:
    """A copy that nobody waits for any longer is still under way."""
    await stage.reach(10)
    begun, may_end = threading.Event(), threading.Event()
    copy = stage.machine.copy

    def slow_copy() -> Any:
        begun.set()
        assert may_end.wait(30)
        return copy()

    stage.machine.copy = slow_copy  # type: ignore[method-assign]
    copying = asyncio.create_task(stage.applying.copy())
    await asyncio.to_thread(begun.wait, 30)
    copying.cancel()
    await asyncio.wait([copying])
    stage.applying.on_turn(20)
    for _ in range(5):
        await asyncio.sleep(0)
    assert stage.machine.indexes[-1] == 10

    may_end.set()
    await until(lambda: stage.applying.index == 20)
    assert not in_loop(stage)


async def test_a_log_that_is_being_replaced_is_left_to_the_thread(stage: Stage) -> None:
    await stage.reach(10)
    with stage.applying.reading:
        stage.applying.on_turn(20)
        for _ in range(5):
            await asyncio.sleep(0)
        assert stage.applying.index == 10
    await until(lambda: stage.applying.index == 20)
    assert not in_loop(stage)


async def test_a_truncated_log_is_compared_with_the_state_before_more_is_applied(
    stage: Stage,
) -> None:
    """With AsyncFlush, what was committed may be truncated."""
    stage.store.append_bodies([SET.pack(1, 1)] * 3, 1)
    await stage.reach(ENTRIES + 2)
    stage.store.truncate(ENTRIES)
    stage.store.append_bodies([SET.pack(2, 2)] * 5, 2)
    stage.applying.on_turn(ENTRIES + 4)

    error = await asyncio.wait_for(stage.failed.get(), 30)
    assert isinstance(error, StoreDamagedError)
    assert (error.damage, error.index) == (Damage.DIVERGED, ENTRIES + 2)
    assert stage.machine.indexes[-1] == ENTRIES + 2


async def test_a_machine_that_fails_in_the_event_loop_ends_the_member(stage: Stage) -> None:
    await stage.reach(10)
    stage.machine.broken = ZeroDivisionError("a bug")
    stage.applying.on_turn(20)
    assert await asyncio.wait_for(stage.failed.get(), 30) is stage.machine.broken
    stage.applying.on_turn(30)
    await asyncio.sleep(0)

    assert stage.failed.empty()
    assert stage.applying.index == 10


async def test_what_is_not_quick_is_applied_in_the_thread(stage: Stage) -> None:
    await stage.reach(10)
    stage.machine.quick = False
    await stage.reach(11)
    assert not in_loop(stage)


async def test_a_copy_is_freed_once_nobody_needs_it(stage: Stage) -> None:
    """A state may take hundreds of MiB, and the next copy may be days away."""
    await stage.reach(10)
    copy = weakref.ref((await stage.applying.copy()).machine)
    gc.collect()
    await until(lambda: copy() is None)  # the thread leaves its own call a little later


async def test_a_listener_that_fails_leaves_no_entries_in_memory(stage: Stage) -> None:
    await stage.reach(10)
    loop = asyncio.get_running_loop()
    told: list[Any] = []
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))

    def fail(_: int) -> None:
        assert stage.applying.just_applied is not None
        raise ZeroDivisionError

    stage.applying.call_when_applied(fail)
    stage.applying.on_turn(11)
    await until(lambda: bool(told))

    assert isinstance(told[0], ZeroDivisionError)
    assert stage.applying.just_applied is None


async def test_a_listener_is_called_with_the_applied_index_after_every_batch(stage: Stage) -> None:
    await stage.in_batches_of(100)
    applied: list[int] = []
    stage.applying.call_when_applied(applied.append)
    stage.applying.on_turn(ENTRIES - 1)
    await until(lambda: applied[-1:] == [ENTRIES - 1])

    assert applied == [99, 199, 299]


async def test_a_closed_state_applies_nothing_more(stage: Stage) -> None:
    await stage.applying.close()
    stage.applying.on_turn(299)

    assert stage.applying.index == -1
    assert stage.failed.empty()


async def test_a_restarted_state_goes_on_behind_its_snapshot(stage: Stage) -> None:
    await stage.reach(120)
    copy = await stage.applying.copy()
    stage.snapshots.save(copy.index, copy.term, copy.machine.dump())
    await stage.applying.close()

    stage.applying = stage.begin(restore("register", stage.snapshots, stage.store))
    assert stage.applying.index == 120
    await stage.reach(ENTRIES - 1)

    assert isinstance(stage.applying.machine, Register)
    assert [stage.applying.machine.get(key) for key in range(10)] == [*range(290, 300)]


async def test_a_state_whose_log_was_replaced_goes_on_from_the_snapshot(stage: Stage) -> None:
    await stage.reach(20)
    leaders = Register()
    leaders.apply([CommittedEntry(k, SET.pack(k % 10, k)) for k in range(1, ENTRIES)])
    begin_index = stage.store.front.sealed_segments()[1].last_index + 1
    stage.snapshots.save(begin_index + 3, 1, leaders.dump())
    with stage.applying.reading:
        begin = stage.store.front.save_begin(begin_index)
        stage.store.front.delete(stage.store.front.forget_before(begin))

    await stage.reach(ENTRIES - 1)

    assert stage.machine.indexes[-1] == 20, "the restored state is another object"
    assert isinstance(stage.applying.machine, Register)
    assert stage.applying.machine.get(9) == 299


async def test_a_state_that_the_committed_log_contradicts_ends_the_member(stage: Stage) -> None:
    await stage.applying.close()
    stage.applying = stage.begin(Applied(machine=Register(), index=120, term=0))
    stage.applying.on_turn(119)
    stage.applying.on_turn(120)

    error = await stage.failed.get()
    assert isinstance(error, StoreDamagedError)
    assert (error.damage, error.index) == (Damage.DIVERGED, 120)


async def test_a_machine_that_fails_ends_the_member_and_gets_no_further_entry(stage: Stage) -> None:
    stage.machine.broken = ZeroDivisionError("a bug")
    stage.applying.on_turn(10)
    assert await stage.failed.get() is stage.machine.broken
    stage.applying.on_turn(20)

    assert stage.failed.empty()
    assert stage.applying.index == -1
