"""Committed entries reach the state machine in order, each once, whatever the pace."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from dledger_formats.log import disk
from dledger_formats.protocol.register import SET
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.state_machine import apply as applying_module
from dledger_node.state_machine.apply import Applying
from dledger_node.state_machine.machine import CommittedEntry
from dledger_node.state_machine.register import Register
from dledger_node.state_machine.restore import Applied, restore
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.snapshots.snapshots import Snapshots

ENTRIES = 300


class Counting(Register):
    """A register that also notes what it was given, and checks the order."""

    def __init__(self) -> None:
        super().__init__()
        self.indexes: list[int] = []
        self.broken: Exception | None = None

    def apply(self, entries: Sequence[CommittedEntry]) -> None:
        if self.broken is not None:
            raise self.broken
        self.indexes += [entry.index for entry in entries]
        super().apply(entries)


class Stage:
    """A log, its state, and the loop's side of applying."""

    def __init__(self, folder: Path) -> None:
        self.store = LogStore.open(folder, segment_size_bytes=4096, index_segment_size_bytes=320)
        self.store.append_noop(1)
        self.store.append_bodies([SET.pack(k % 10, k) for k in range(1, ENTRIES)], 1)
        target = self.store.flush_target()
        self.store.flush(target)
        self.store.flushed(target)
        self.store.save_checkpoint(ENTRIES - 1)
        self.snapshots = Snapshots(folder, reserved=3)
        self.machine = Counting()
        self.failed: asyncio.Queue[BaseException] = asyncio.Queue()
        self.applying = self.begin(Applied(machine=self.machine))

    def begin(self, applied: Applied) -> Applying:
        return Applying(
            "register", applied, self.snapshots, self.store, fail=self.failed.put_nowait
        )

    async def reach(self, index: int) -> None:
        """Commit up to an entry and wait until it is applied."""
        reached: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.applying.settle(index)
        self.applying.wait(index, reached.set_result)
        assert await reached


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(tmp_path)
    yield made
    await made.applying.close()
    made.store.close()


@pytest.mark.parametrize("batch", [1, 7, 4096])
@pytest.mark.parametrize("steps", [[299], [0, 1, 5, 150, 299], [*range(0, 300, 13), 299]])
async def test_any_pace_and_any_batches_give_one_state(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, batch: int, steps: list[int]
) -> None:
    monkeypatch.setattr(applying_module, "BATCH_ENTRIES_MAX", batch)
    for index in steps:
        await stage.reach(index)

    assert stage.machine.indexes == list(range(1, ENTRIES)), "each once, and no no-op"
    assert [stage.machine.get(key) for key in range(10)] == [*range(290, 300)]
    assert stage.applying.index == ENTRIES - 1


@pytest.mark.parametrize("content", [bytes(512), bytes([7]) * 512])
async def test_what_was_lost_since_it_was_written_is_not_applied(
    stage: Stage, content: bytes
) -> None:
    """As after a flush that failed; the thread read zeros for ever, and the member never ended."""
    stage.store._files.data.files[1].write(512, content)

    stage.applying.settle(ENTRIES - 1)

    error = await asyncio.wait_for(stage.failed.get(), 30)
    assert isinstance(error, StoreDamagedError)
    assert error.damage is Damage.BAD_ENTRY
    assert stage.machine.indexes == list(range(1, len(stage.machine.indexes) + 1))


async def test_nothing_is_applied_that_is_not_committed(stage: Stage) -> None:
    await stage.reach(50)

    assert stage.machine.indexes[-1] == 50
    assert stage.applying.index == 50


async def test_a_copy_is_of_the_index_that_it_says(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applying_module, "BATCH_ENTRIES_MAX", 3)
    stage.applying.settle(ENTRIES - 1)
    copies = [await stage.applying.copy() for _ in range(20)]
    await stage.reach(ENTRIES - 1)

    for copy in copies:
        expected = Register()
        bodies = (stage.store.entry(index) for index in range(copy.index + 1))
        expected.apply(
            [CommittedEntry(h.index, body) for h, body in bodies if h.magic == disk.NORMAL]
        )
        assert b"".join(copy.machine.dump()) == b"".join(expected.dump())


async def test_who_waits_is_answered_in_turn(stage: Stage) -> None:
    answers: list[tuple[int, bool, int]] = []

    def asker(index: int) -> Callable[[bool], None]:
        return lambda applied: answers.append((index, applied, stage.applying.index))

    for index in (10, 20, 299):
        stage.applying.settle(index)
        stage.applying.wait(index, asker(index))
    await stage.reach(299)

    assert [(index, applied) for index, applied, _ in answers] == [
        (10, True),
        (20, True),
        (299, True),
    ]
    assert all(seen >= index for index, _, seen in answers)


async def test_who_waits_too_long_or_is_one_too_many_is_told(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[bool] = []
    monkeypatch.setattr(applying_module, "WAITERS_MAX", 1)
    monkeypatch.setattr(applying_module, "WAIT_S", 0.0)
    stage.applying.wait(500, answers.append)
    stage.applying.wait(500, answers.append)
    assert answers == [False], "one too many"

    stage.applying.settle(-1)
    assert answers == [False, False], "too long"


async def test_who_waits_when_the_member_stops_is_told(stage: Stage) -> None:
    answers: list[bool] = []
    stage.applying.wait(500, answers.append)
    await stage.applying.close()
    stage.applying.settle(299)

    assert answers == [False]
    assert stage.failed.empty()


async def test_a_restart_goes_on_behind_the_snapshot(stage: Stage) -> None:
    await stage.reach(120)
    copy = await stage.applying.copy()
    stage.snapshots.save(copy.index, copy.term, copy.machine.dump())
    await stage.applying.close()

    stage.applying = stage.begin(restore("register", stage.snapshots, stage.store))
    assert stage.applying.index == 120
    await stage.reach(ENTRIES - 1)

    assert isinstance(stage.applying.machine, Register)
    assert [stage.applying.machine.get(key) for key in range(10)] == [*range(290, 300)]


async def test_a_log_that_begins_anew_goes_on_from_the_snapshot(stage: Stage) -> None:
    await stage.reach(20)
    leaders = Register()
    leaders.apply([CommittedEntry(k, SET.pack(k % 10, k)) for k in range(1, ENTRIES)])
    begin_index = stage.store.front.sealed_segments()[1].last_index + 1
    stage.snapshots.save(begin_index + 3, 1, leaders.dump())
    with stage.applying.reading:
        stage.store.front.save_begin(begin_index)
        stage.store.front.delete(stage.store.front.forget_before(begin_index))

    await stage.reach(ENTRIES - 1)

    assert stage.machine.indexes[-1] == 20, "the new state is another object"
    assert isinstance(stage.applying.machine, Register)
    assert stage.applying.machine.get(9) == 299


async def test_a_state_that_the_committed_log_contradicts_ends_the_member(stage: Stage) -> None:
    await stage.applying.close()
    stage.applying = stage.begin(Applied(machine=Register(), index=120, term=0))
    stage.applying.settle(119)
    stage.applying.settle(120)

    error = await stage.failed.get()
    assert isinstance(error, StoreDamagedError)
    assert (error.damage, error.index) == (Damage.DIVERGED, 120)


async def test_a_machine_that_fails_ends_the_member_and_is_not_asked_again(stage: Stage) -> None:
    stage.machine.broken = ZeroDivisionError("a bug")
    stage.applying.settle(10)
    assert await stage.failed.get() is stage.machine.broken
    stage.applying.settle(20)

    assert stage.failed.empty()
    assert stage.applying.index == -1
