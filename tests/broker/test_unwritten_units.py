"""Units that are in memory and in no file yet: a reader sees them as if they were in one."""

import gc
import random
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger_broker.errors import NotABrokerLogError, QueueFilesError
from dledger_broker.queues import checkpoint, unwritten
from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.queue_store import QueueStore
from dledger_broker_log.crashes import contents, crash
from dledger_broker_log.folders import fresh_folder
from dledger_broker_log.logs import CUTS, STEPS, Log, Send, Step, batches
from dledger_formats.rocketmq.consume_queue import UNIT_BYTES, Unit
from dledger_formats.rocketmq.state_records import TopicDeleted
from dledger_node.state_machine.machine import CommittedEntry

FILE_BYTES = 5 * UNIT_BYTES
"""Small files, so that queues have several."""


def opened(folder: Path, log: Log) -> QueueStore:
    return QueueStore.open(folder, begin_index=0, mark_of=log.mark, file_bytes=FILE_BYTES)


def keep(store: QueueStore, log: Log, end: int) -> bool:
    """Keep the entries that the store lacks in memory; return whether that was possible."""
    mark = log.mark(end - 1)
    assert mark is not None
    return store.keep(log.batch(store.built_index + 1, end), mark) is not None


def add(store: QueueStore, log: Log, end: int) -> None:
    """Add the entries that the store lacks to the files."""
    mark = log.mark(end - 1)
    assert mark is not None
    store.add(log.batch(store.built_index + 1, end), mark)


def units_of(store: QueueStore, queue: tuple[str, int], count: int = 100) -> list[Unit]:
    """Return all units of a queue, so many at a time."""
    units: list[Unit] = []
    while more := store.units(*queue, len(units), count):
        units += more
    return units


@given(STEPS, CUTS, st.integers(0, 1 << 20), st.integers(1, 9))
def test_units_are_those_of_the_model_whether_in_memory_or_in_files(
    steps: list[Step], cuts: list[int], seed: int, count: int
) -> None:
    log, chance = Log().extend(steps), random.Random(seed)
    for folder in fresh_folder():
        store = opened(folder, log)
        for _, end in batches(log, cuts):
            if chance.random() < 0.3 or not keep(store, log, end):
                add(store, log, end)
            work = chance.choice((list, store.write, store.save))
            written = work()
            if chance.random() < 0.7:
                store.forget(written)
        for queue in [*log.units, ("T", 3), ("U", 3)]:
            assert units_of(store, queue, count) == log.units.get(queue, []), queue
        store.close()


@settings(max_examples=60)
@given(STEPS, CUTS, st.integers(0, 1 << 20))
def test_a_crash_loses_no_unit_that_the_next_start_does_not_build_again(
    steps: list[Step], cuts: list[int], seed: int
) -> None:
    log = Log().extend([*steps, Send("T", 0)])
    chance = random.Random(seed)
    for folder in fresh_folder():
        store = opened(folder, log)
        durable = contents(folder)
        for _, end in batches(log, cuts):
            if not keep(store, log, end):
                add(store, log, end)
            if chance.random() < 0.4:
                store.forget(store.save())
                durable = contents(folder)
            if chance.random() < 0.6:
                store.close()
                crash(folder, durable, chance)
                folder.mkdir(exist_ok=True)
                store = opened(folder, log)
                durable = contents(folder)
        if store.built_index < len(log.entries) - 1:
            add(store, log, len(log.entries))
        for queue, units in log.units.items():
            assert units_of(store, queue) == units
        store.close()


def test_a_deleted_topic_is_the_work_of_files(tmp_path: Path) -> None:
    log = Log().extend([Send("T", 0), TopicDeleted(topic="T")])
    store = opened(tmp_path, log)
    assert keep(store, log, 1)

    assert not keep(store, log, 2)
    assert store.built_index == 0
    add(store, log, 2)
    assert units_of(store, ("T", 0)) == []
    store.close()


def test_units_that_leave_a_gap_are_the_work_of_files(tmp_path: Path) -> None:
    log = Log().extend([Send("T", 0)] * 4)
    store = opened(tmp_path, log)
    assert keep(store, log, 1)
    mark = log.mark(3)
    assert mark is not None

    assert store.keep(log.batch(2, 4), mark) is None
    assert units_of(store, ("T", 0)) == log.units["T", 0][:1]
    store.close()


def test_memory_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unwritten, "UNITS_MAX", 3)
    log = Log().extend([Send("T", 0)] * 5)
    store = opened(tmp_path, log)
    kept = [keep(store, log, end) for end in (1, 2, 3, 4)]

    assert kept == [True, True, True, False]
    assert store.unwritten_units == 3
    store.forget(store.write())
    assert store.unwritten_units == 0
    assert keep(store, log, 4)
    store.close()


def test_few_queues_are_in_memory_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To forget them takes a time for each."""
    monkeypatch.setattr(unwritten, "QUEUES_MAX", 2)
    log = Log().extend([Send("T", 0), Send("T", 1), Send("T", 2)])
    store = opened(tmp_path, log)

    assert [keep(store, log, end) for end in (1, 2, 3)] == [True, True, False]
    store.close()


def test_long_tags_are_the_work_of_a_thread(tmp_path: Path) -> None:
    """The hash of a tag takes a time for each of its characters."""
    short, long = Send("T", 0, tag="a" * 200), Send("T", 0, tag="a" * 2100)
    log = Log().extend([*[short] * 20, long, long, long])
    store = opened(tmp_path, log)

    assert keep(store, log, 20)
    assert keep(store, log, 21)
    assert not keep(store, log, 23)
    store.close()


def test_a_deletion_makes_room_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log().extend([Send("T", 0), Send("U", 0), Send("T", 0), TopicDeleted(topic="T")])
    store = opened(tmp_path, log)
    add(store, log, 1)
    assert keep(store, log, 3)

    def refuse(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", refuse)
        with pytest.raises(QueueFilesError, match="No space left"):
            add(store, log, 4)
        assert not any(tmp_path.rglob("T/0/*")), "the files of the topic are gone"
    add(store, log, 4)
    assert units_of(store, ("T", 0)) == []
    assert units_of(store, ("U", 0)) == log.units["U", 0]
    store.close()


def test_units_are_taken_in_one_step_whatever_is_collected_meanwhile(tmp_path: Path) -> None:
    """A collection of garbage within a step lets another thread add a queue in the middle of it."""
    log = Log().extend([Send("T", number) for number in range(200)])
    store = opened(tmp_path, log)
    keep(store, log, 20)
    ends = iter(range(21, 200))

    def add_another(_phase: str, _info: dict[str, int]) -> None:
        end = next(ends, None)
        if end is not None:
            assert keep(store, log, end)

    thresholds = gc.get_threshold()
    gc.callbacks.append(add_another)
    gc.set_threshold(1, 1, 1)
    try:
        taken = store._unwritten.taken()
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(add_another)
    assert len(taken) >= 20
    assert store.unwritten_units > 20, "queues were added meanwhile"
    store.close()


def test_what_cannot_be_written_stays_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log().extend([Send("T", 0)] * 2)
    store = opened(tmp_path, log)
    keep(store, log, 2)

    def refuse(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", refuse)
        with pytest.raises(QueueFilesError, match="No space left"):
            store.save()
    assert store.saved_index == -1
    assert units_of(store, ("T", 0)) == log.units["T", 0]
    store.forget(store.save())
    assert store.saved_index == 1
    assert units_of(store, ("T", 0)) == log.units["T", 0]
    store.close()


def test_units_that_are_added_during_a_save_stay_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log().extend([Send("T", 0), Send("U", 1), Send("T", 0), Send("U", 2)])
    store = opened(tmp_path, log)
    keep(store, log, 2)
    sync = store._files.sync

    def add_meanwhile(paths: Sequence[Path]) -> None:
        assert keep(store, log, 4)
        sync(paths)

    monkeypatch.setattr(store._files, "sync", add_meanwhile)
    store.forget(store.save())

    assert store.saved_index == 1
    assert store.unwritten_units == 2
    assert store.unsaved_entries == 2
    for queue, units in log.units.items():
        assert units_of(store, queue) == units
    store.close()


def test_a_save_that_ends_after_its_queues_were_deleted_leaves_no_checkpoint(
    tmp_path: Path,
) -> None:
    log = Log().extend([Send("T", 0)] * 2)
    store = opened(tmp_path, log)
    keep(store, log, 2)
    _, save = store.begin_save()
    assert save is not None
    store.restart(0)

    store.end_save(save)

    assert store.saved_index == -1
    assert checkpoint.load(tmp_path) is None
    store.close()


def test_an_entry_that_is_no_message_changes_nothing(tmp_path: Path) -> None:
    log = Log().extend([Send("T", 0)])
    store = opened(tmp_path, log)
    mark = log.mark(0)
    assert mark is not None

    with pytest.raises(NotABrokerLogError):
        store.keep([*log.batch(0, 1), CommittedEntry(1, b"no record")], mark)
    assert store.built_index == -1
    assert units_of(store, ("T", 0)) == []
    store.close()


def test_newest_units_need_no_file_in_the_page_cache(tmp_path: Path) -> None:
    log = Log().extend([Send("T", 0)] * 4)
    store = opened(tmp_path, log)
    add(store, log, 2)
    keep(store, log, 4)
    queue, units = QueueId("T", 0), log.units["T", 0]

    def not_cached(*_: Any) -> int:
        return 0

    assert store.cached_units(queue, 2, 9, not_cached) == units[2:]
    assert store.cached_units(queue, 3, 1, not_cached) == units[3:]
    assert store.cached_units(queue, 1, 9, not_cached) is None
    store.units(*queue, 0, 1)  # opens the file

    def cached(fd: int, buffer: bytearray, at: int) -> int:
        with open(fd, "rb", closefd=False) as file:
            file.seek(at)
            return file.readinto(buffer)

    assert store.cached_units(queue, 1, 9, cached) == units[1:]
    store.close()


def test_a_reader_never_misses_what_a_thread_writes_meanwhile(tmp_path: Path) -> None:
    """Each unit is in memory, in a file, or in both, in the eyes of any thread."""
    count = 2_000
    log = Log().extend([Send("T", 0)] * count)
    store = QueueStore.open(tmp_path, begin_index=0, mark_of=log.mark)
    missing: list[tuple[int, int]] = []
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            known = store.built_index + 1
            first = max(0, known - 40)
            found = store.units("T", 0, first, 64)
            if found[: known - first] != log.units["T", 0][first:known]:
                missing.append((known, len(found)))

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for end in range(1, count + 1):
            assert keep(store, log, end)
            if end % 3 == 0:
                store.forget(store.write())
    finally:
        sys.setswitchinterval(interval_s)
        is_over.set()
        reader.join(30)
    assert missing == []
    store.close()
