"""Units of messages that the log no longer has: their space is freed, and no other unit is lost."""

import contextlib
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger_broker.errors import QueueFilesError
from dledger_broker.queues import removed_units
from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.checkpoint import Mark
from dledger_broker.queues.files import QueueFiles
from dledger_broker.queues.kept_messages import KeptMessages
from dledger_broker.queues.queue_store import QueueStore
from dledger_broker_log.crashes import contents, crash
from dledger_broker_log.folders import fresh_folder
from dledger_broker_log.logs import CUTS, Log, Send, Step, batches
from dledger_formats.log.disk import ENTRY_HEADER_SIZE
from dledger_formats.rocketmq import message_record
from dledger_formats.rocketmq.consume_queue import FOLDER, UNIT, UNIT_BYTES, Unit
from dledger_formats.rocketmq.state_records import TopicDeleted

FILE_UNITS = 5
QUEUE = QueueId("T", 0)


class RetainedLog(Log):
    """A log whose front retention removes."""

    begin_index = 0

    @property
    def begin_pos(self) -> int:
        """Where the first entry begins."""
        return self._pos_of(self.begin_index)

    def mark(self, index: int) -> Mark | None:
        """Return the mark of an entry; None if the log does not have it."""
        return super().mark(index) if index >= self.begin_index else None

    def _pos_of(self, index: int) -> int:
        entry = self.entries[index]
        assert entry is not None
        return message_record.decode(entry.body).physical_offset - ENTRY_HEADER_SIZE


def opened(folder: Path, log: RetainedLog) -> QueueStore:
    return QueueStore.open(
        folder, begin_index=log.begin_index, mark_of=log.mark, file_bytes=FILE_UNITS * UNIT_BYTES
    )


def trim(store: QueueStore, begin_pos: int) -> int:
    """Trim all queues; return the bytes that their files take."""
    return sum(store.trim(begin_pos))


def check_kept(store: QueueStore, log: RetainedLog) -> None:
    """Check that each queue has the unit of every message that is kept, and no wrong one."""
    begin_pos: int = log.begin_pos
    nothing: Any = None
    kept = KeptMessages(store, lambda: begin_pos, nothing, nothing, nothing)
    for queue, units in log.units.items():
        if not units:
            continue
        first = sum(unit.physical_offset < begin_pos for unit in units)
        at = first
        while at < len(units):
            found = store.units(*queue, at, len(units))
            assert found == units[at : at + len(found)] != [], (queue, at)
            at += len(found)
        for number, unit in enumerate(units[:first]):
            assert store.units(*queue, number, 1) in ([], [unit])
        assert kept.min_offset(QueueId(*queue), len(units), has_all=True) == first


def check_files(folder: Path, log: RetainedLog) -> None:
    """Check that each queue has files for what is kept and the unit before it, and no others."""
    for (topic, queue_id), units in log.units.items():
        first = max(0, sum(unit.physical_offset < log.begin_pos for unit in units) - 1)
        names = sorted(path.name for path in (folder / FOLDER / topic / str(queue_id)).glob("*"))
        file_bytes = FILE_UNITS * UNIT_BYTES
        begins = range(first // FILE_UNITS * file_bytes, len(units) * UNIT_BYTES, file_bytes)
        assert names == [f"{begin:020d}" for begin in begins]


_steps: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        *[st.tuples(st.sampled_from(("T", "U")), st.integers(0, 1)).map(lambda to: Send(*to))] * 6,
        st.just(TopicDeleted(topic="U")),
    ),
    min_size=1, max_size=60,
)  # fmt: skip


@settings(max_examples=200)
@given(_steps, CUTS, st.integers(0, 1 << 20))
def test_no_unit_of_a_kept_message_is_lost_whatever_is_removed_and_when(
    steps: list[Step], cuts: list[int], seed: int
) -> None:
    """Retention, trims, crashes and starts in any order; a trim knows an older front."""
    log, chance = RetainedLog(), random.Random(seed)
    whole = Log().extend(steps)
    for folder in fresh_folder():
        store, front = opened(folder, log), 0
        durable = contents(folder)
        for first, end in batches(whole, cuts):
            log.extend(steps[first:end])
            mark = log.mark(end - 1)
            assert mark is not None
            entries = log.batch(store.built_index + 1, end)
            if chance.random() < 0.5 or store.keep(entries, mark) is None:
                store.add(entries, mark)
            if chance.random() < 0.5:
                store.forget(store.save())
                durable = contents(folder)
                log.begin_index = chance.randint(log.begin_index, end - 1)
            check_kept(store, log)
            if chance.random() < 0.7:
                trim(store, front)
                front = log.begin_pos
            check_kept(store, log)
            if chance.random() < 0.3:
                store.close()
                crash(folder, durable, chance)
                folder.mkdir(exist_ok=True)
                store = opened(folder, log)
                if store.built_index < end - 1:
                    store.add(log.batch(store.built_index + 1, end), mark)
                durable = contents(folder)
                check_kept(store, log)
        store.forget(store.save())
        trim(store, log.begin_pos)
        check_kept(store, log)
        store.close()


@given(st.lists(st.integers(0, 2), min_size=1, max_size=80), st.floats(0, 1))
def test_a_queue_has_files_for_what_is_kept_and_for_the_unit_before_it(
    queues: list[int], removed: float
) -> None:
    log = RetainedLog()
    log.extend([Send("T", queue) for queue in queues])
    for folder in fresh_folder():
        store = opened(folder, log)
        mark = log.mark(len(queues) - 1)
        assert mark is not None
        store.add(log.batch(0, len(queues)), mark)
        log.begin_index = int(removed * (len(queues) - 1))
        trim(store, log.begin_pos)

        check_files(folder, log)
        check_kept(store, log)
        store.close()


# Files with thousands of units.

COUNT = 39_000
KEPT = 36_864
"""The first unit that is kept; a block of the file system begins with it."""


def unit_at(number: int) -> bytes:
    return UNIT.pack(1000 * (number + 1), 100, number)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[QueueFiles]:
    """The files of a queue that has one file, of 780 KB."""
    made = QueueFiles(tmp_path)
    made.write(QUEUE, 0, b"".join(map(unit_at, range(COUNT))))
    made.sync(made.take_unsynced())
    yield made
    made.close()


def on_disk(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def test_the_space_before_the_last_removed_unit_of_a_file_is_given_back(
    files: QueueFiles, tmp_path: Path
) -> None:
    before = on_disk(tmp_path)
    [reported] = files.trim(1000 * KEPT + 1)
    units = [files.read(QUEUE, first, 1) for first in range(COUNT)]

    assert before >= COUNT * UNIT_BYTES
    assert reported == on_disk(tmp_path) <= (COUNT - KEPT) * UNIT_BYTES + 2 * 4096
    wanted = [[Unit(*UNIT.unpack(unit_at(number)))] for number in range(COUNT)]
    assert units[KEPT - 1 :] == wanted[KEPT - 1 :], "the last removed one stays"
    assert all(found in ([], unit) for found, unit in zip(units, wanted, strict=True))
    assert not any(units[: KEPT - 1 - 4096 // UNIT_BYTES - 1]), "the rest is a hole"


def test_the_queue_goes_on_after_its_front_is_given_back(files: QueueFiles, tmp_path: Path) -> None:
    list(files.trim(1000 * KEPT + 1))
    files.write(QUEUE, COUNT, unit_at(COUNT))
    list(files.trim(1000 * COUNT + 1))

    assert on_disk(tmp_path) <= removed_units.SMALL_BYTES + 4096
    assert [unit.tags_code for unit in files.read(QUEUE, COUNT - 1, 9)] == [COUNT - 1, COUNT]


def test_a_file_system_without_holes_keeps_the_space_and_loses_nothing(
    files: QueueFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removed_units.ctypes, "CDLL", lambda _: object())  # type: ignore[attr-defined]
    before = on_disk(tmp_path)
    list(files.trim(1000 * KEPT + 1))

    assert on_disk(tmp_path) == before
    assert len(files.read(QUEUE, KEPT, COUNT)) == COUNT - KEPT


def fail(*_: object) -> int:
    raise AssertionError("there is nothing to be done")


def test_a_hole_is_made_once_until_it_would_be_much_longer(
    files: QueueFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    list(files.trim(1000 * 10_000 + 1))
    monkeypatch.setattr(removed_units.ctypes, "CDLL", fail)  # type: ignore[attr-defined]
    list(files.trim(1000 * 13_000 + 1))

    with pytest.raises(AssertionError):
        list(files.trim(1000 * 14_000 + 1))


def test_a_queue_that_takes_little_space_is_not_read(
    files: QueueFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    list(files.trim(1000 * KEPT + 1))
    monkeypatch.setattr(removed_units, "_last_removed", fail)

    [reported] = files.trim(1000 * (KEPT + 100) + 1)
    assert reported <= removed_units.SMALL_BYTES


def test_nothing_keeps_the_space_of_a_deleted_file(tmp_path: Path) -> None:
    files = QueueFiles(tmp_path, file_bytes=100 * UNIT_BYTES)
    files.write(QUEUE, 0, b"".join(map(unit_at, range(1000))))
    for first in range(0, 1000, 100):
        files.read(QUEUE, first, 1)
    list(files.trim(1000 * 950 + 1))
    links = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of this very listing
            links.append(os.readlink(f"/proc/self/fd/{name}"))

    assert len([link for link in links if link.startswith(str(tmp_path))]) == 2, "one to write"
    assert len(list(tmp_path.rglob("T/0/*"))) == 1
    files.sync(files.take_unsynced())
    files.close()


def test_a_queue_that_cannot_be_trimmed_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = QueueFiles(tmp_path, file_bytes=100 * UNIT_BYTES)
    for queue_id in range(5):
        files.write(QueueId("T", queue_id), 0, b"".join(map(unit_at, range(1000))))
    unlink = Path.unlink

    def refuse(path: Path) -> None:
        if path.parent.name == "2":
            raise OSError(5, "Input/output error")
        unlink(path)

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(QueueFilesError, match=r"T/2: .*Input/output error"):
        list(files.trim(1000 * 950 + 1))

    counts = [len(list((tmp_path / "T" / str(queue_id)).iterdir())) for queue_id in range(5)]
    assert counts == [1, 1, 10, 1, 1]
    files.close()


def test_a_topic_may_be_deleted_while_the_queues_are_trimmed(tmp_path: Path) -> None:
    files = QueueFiles(tmp_path)
    for queue_id in range(3):
        files.write(QueueId("T", queue_id), 0, unit_at(0))
    sizes = files.trim(1001)
    assert next(sizes) > 0
    files.delete_topic("T")

    assert list(sizes) == [0, 0]
    files.close()


@pytest.mark.parametrize("damage", [bytes(UNIT_BYTES), UNIT.pack(1, 1, 1)])
def test_no_damage_of_a_unit_lets_a_queue_lose_the_units_after_it(
    tmp_path: Path, damage: bytes
) -> None:
    """It may lose some before it: whoever reads them has all queues built again."""
    files = QueueFiles(tmp_path, file_bytes=10 * UNIT_BYTES)
    files.write(QUEUE, 0, b"".join(map(unit_at, range(100))))
    for number in range(100):
        files.write(QUEUE, number, damage)
        list(files.trim(1000 * 45 + 1))
        after = max(number, 45) + 1
        found: list[Unit] = []
        while more := files.read(QUEUE, after + len(found), 100):
            found += more
        assert [unit.tags_code for unit in found] == list(range(after, 100)), number
        files.delete_all()
        files.write(QUEUE, 0, b"".join(map(unit_at, range(100))))
    files.close()
