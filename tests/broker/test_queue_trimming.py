"""When the queues of a member are trimmed: a minute after the log has lost its front."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dledger_broker.errors import QueueFilesError
from dledger_broker.queues import trimming
from dledger_broker.queues.trimming import QueueTrimming
from dledger_node.errors import Damage, StoreDamagedError
from dledger_wire.listener import until


class Stage:
    """A log and queues as the test sets them, and what is done with them."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.begin_index = self.built_index = 0
        self.begin_pos = 0
        self.queues: list[int] = [10, 20]
        """The bytes of the files of each queue."""
        self.error: Exception | None = None
        self.trimmed: list[int] = []
        """The positions before which units were removed."""
        self.threads: set[str] = set()
        self.failed: list[BaseException] = []
        stage: Any = self
        self.trimming = QueueTrimming(stage, stage, threads)

    def trim(self, begin_pos: int) -> Iterator[int]:
        """See `QueueStore`."""
        self.trimmed.append(begin_pos)
        self.threads.add(threading.current_thread().name)
        yield from self.queues
        if self.error is not None:
            raise self.error

    def fail(self, error: BaseException) -> None:
        """See `Member`."""
        self.failed.append(error)

    async def sweep(self) -> None:
        """Let a minute pass, and wait until all queues were looked at, if they are."""
        self.trimming._next_s = 0.0
        self.trimming.tick()
        await until(lambda: self.trimming._slice is None)

    def begin_at(self, index: int) -> None:
        """Remove the front of the log."""
        self.begin_index, self.begin_pos = index, 100 * index


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    with ThreadPoolExecutor(1, thread_name_prefix="queues") as threads:
        yield Stage(threads)


async def test_only_what_lay_before_the_beginning_a_sweep_ago_is_removed(stage: Stage) -> None:
    """A reader that has just looked where the log begins still finds the units from there on."""
    stage.begin_at(5)
    await stage.sweep()
    stage.begin_at(8)
    await stage.sweep()
    await stage.sweep()

    assert stage.trimmed == [0, 500, 800]
    assert stage.threads == {"queues_0"}


async def test_nobody_looks_again_while_nothing_has_changed(stage: Stage) -> None:
    stage.begin_at(5)
    for _ in range(5):
        await stage.sweep()
    assert stage.trimmed == [0, 500]

    stage.built_index += 1
    await stage.sweep()
    assert stage.trimmed == [0, 500, 500]


async def test_a_log_that_was_replaced_by_an_earlier_one_keeps_its_units(stage: Stage) -> None:
    stage.begin_at(8)
    await stage.sweep()
    stage.begin_at(3)
    await stage.sweep()
    stage.begin_index, stage.begin_pos = 20, 0  # a log without entries
    await stage.sweep()

    assert stage.trimmed == [0, 300, 0]


async def test_the_queues_are_looked_at_once_a_minute(stage: Stage) -> None:
    for _ in range(3):
        stage.built_index += 1
        stage.trimming.tick()
        await until(lambda: stage.trimming._slice is None)

    assert stage.trimmed == [0]


async def test_the_bytes_of_all_queues_are_counted_over_several_turns_of_the_thread(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trimming, "SLICE_QUEUES", 3)
    stage.queues = list(range(10))
    turns: list[int] = []
    begin = stage.trimming._begin_slice

    def count(work: Callable[[], bool]) -> None:
        turns.append(stage.trimming.disk_bytes)
        begin(work)

    monkeypatch.setattr(stage.trimming, "_begin_slice", count)
    await stage.sweep()

    assert turns == [0] * 4
    assert stage.trimming.disk_bytes == sum(range(10))


@pytest.mark.parametrize(
    "error",
    [QueueFilesError("no room"), StoreDamagedError("rot", Damage.BAD_ENTRY, 0), IndexError("gone")],
    ids=lambda error: type(error).__name__,
)
async def test_what_cannot_be_trimmed_now_is_tried_again(
    stage: Stage, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    stage.error = error
    await stage.sweep()
    stage.error = None
    await stage.sweep()

    assert stage.trimmed == [0, 0]
    assert stage.trimming.disk_bytes == 30
    assert caplog.text.count("cannot be trimmed now") == 1
    assert not stage.failed


async def test_an_unexpected_error_stops_the_member(stage: Stage) -> None:
    stage.error = RuntimeError("cannot happen")
    await stage.sweep()

    assert stage.failed == [stage.error]


async def test_a_member_that_stops_looks_at_no_further_queues(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trimming, "SLICE_QUEUES", 1)
    stage.trimming.tick()
    stage.trimming.close()
    await until(lambda: stage.trimming._slice is None)
    await stage.sweep()

    assert stage.trimmed == [0]
    assert stage.trimming.disk_bytes == 0
