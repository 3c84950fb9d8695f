"""Consume queues: the same files from the same log, whatever the batches, restarts and crashes."""

import json
import os
import random
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger_broker.errors import NotABrokerLogError, QueueFilesError
from dledger_broker.queues import checkpoint
from dledger_broker.queues.builder import changes_of
from dledger_broker.queues.checkpoint import Mark
from dledger_broker.queues.files import OPEN_FILES_MAX, QueueFiles, QueueId
from dledger_broker.queues.queue_store import QueueStore
from dledger_broker_log.crashes import contents, crash
from dledger_broker_log.folders import fresh_folder
from dledger_broker_log.logs import CUTS, STEPS, Log, Prepared, Send, Step, batches
from dledger_formats.log import disk
from dledger_formats.rocketmq import message_record, state_records
from dledger_formats.rocketmq.consume_queue import UNIT_BYTES, Unit
from dledger_formats.rocketmq.message_record import MessageRecord
from dledger_formats.rocketmq.state_records import TopicDeleted
from dledger_formats.rocketmq.topic_names import STATE_TOPIC
from dledger_node.state_machine.machine import CommittedEntry

GOLDEN = Path(__file__).parent.parent / "formats" / "golden"
STORES: dict[str, Any] = json.loads((GOLDEN / "rocketmq-manifest.json").read_text())
FILE_BYTES = 5 * UNIT_BYTES
"""Small files, so that queues have several."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "queues"


def opened(folder: Path, log: Log, begin_index: int = 0) -> QueueStore:
    return QueueStore.open(folder, begin_index=begin_index, mark_of=log.mark, file_bytes=FILE_BYTES)


def add(store: QueueStore, log: Log, end: int) -> None:
    """Add the entries that the store lacks, up to `end`."""
    mark = log.mark(end - 1)
    assert mark is not None
    store.add(log.batch(store.built_index + 1, end), mark)


def units_of(store: QueueStore, log: Log) -> dict[tuple[str, int], list[Unit]]:
    """Return the units of every queue of the model, and of queues that must not exist."""
    found = {}
    for queue in [*log.units, ("T", 3), ("U", 3)]:
        units: list[Unit] = []
        while more := store.units(*queue, len(units), 100):
            units += more
        if units:
            found[queue] = units
    return found


# Any log.


@given(STEPS, CUTS)
def test_the_units_are_those_of_the_model_whatever_the_batches(
    steps: list[Step], cuts: list[int]
) -> None:
    log = Log().extend(steps)
    for folder in fresh_folder():
        store = opened(folder, log)
        for _, end in batches(log, cuts):
            add(store, log, end)
        assert units_of(store, log) == {queue: units for queue, units in log.units.items() if units}
        store.close()


@settings(max_examples=60)
@given(STEPS, CUTS, st.integers(0, 1 << 20))
def test_the_files_are_the_same_after_any_crash(
    steps: list[Step], cuts: list[int], seed: int
) -> None:
    log = Log().extend([*steps, Send("T", 0)])
    chance = random.Random(seed)
    for folder in fresh_folder():
        store = opened(folder, log)
        durable = contents(folder)
        for _, end in batches(log, cuts):
            add(store, log, end)
            if chance.random() < 0.4:
                store.save()
                durable = contents(folder)
            if chance.random() < 0.6:
                store.close()
                crash(folder, durable, chance)
                folder.mkdir(exist_ok=True)
                store = opened(folder, log)
                durable = contents(folder)
        if store.built_index < len(log.entries) - 1:
            add(store, log, len(log.entries))
        store.save()
        store.close()
        for other in fresh_folder():
            straight = opened(other, log)
            add(straight, log, len(log.entries))
            straight.save()
            straight.close()
            assert contents(folder) == contents(other)


@given(STEPS, st.integers(0, 40))
def test_a_start_goes_on_after_the_last_save(steps: list[Step], cut: int) -> None:
    log = Log().extend([*steps, Send("T", 0), Send("T", 0)])
    saved = min(cut, len(log.entries) - 2) + 1
    for folder in fresh_folder():
        store = opened(folder, log)
        add(store, log, saved)
        store.save()
        add(store, log, len(log.entries))
        store.close()
        again = opened(folder, log)

        assert again.built_index == saved - 1
        again.close()


# Java's brokers.


def test_the_files_are_those_of_a_java_broker_without_its_empty_end(folder: Path) -> None:
    with tarfile.open(GOLDEN / STORES["archive"]) as tar:
        data, java = b"", {}
        for member in tar:
            if member.name.startswith("store-n0/") and member.isfile():
                name = member.name.removeprefix("store-n0/")
                content = tar.extractfile(member)
                assert content is not None
                if name.startswith("consumequeue/"):
                    java[Path(name)] = content.read().rstrip(b"\0")
                elif name.startswith("dledger-n0/data/"):
                    data = content.read()
    rows = [dict(zip(STORES["entries_columns"], row, strict=True)) for row in STORES["entries"]]
    entries = []
    for row in rows:
        at = row["pos"] + disk.ENTRY_HEADER_SIZE
        entries.append(CommittedEntry(row["index"], data[at : at + row["record_size"]]))
    last = Mark(len(rows) - 1, 1, rows[-1]["pos"], 0)
    store = QueueStore.open(
        folder, begin_index=0, mark_of=lambda _: None,
        file_bytes=STORES["consume_queue_file_size"],
    )  # fmt: skip
    store.add(entries, last)
    store.close()

    built = {path: raw.rstrip(b"\0") for path, raw in contents(folder).items()}
    assert built == java


# Starts.


def small_log() -> Log:
    return Log().extend([Send("T", 0, "TagA"), Send("T", 1), Send("T", 0), Send("U", 0)])


def built(folder: Path, log: Log) -> None:
    store = opened(folder, log)
    add(store, log, len(log.entries))
    store.save()
    store.close()


@pytest.mark.parametrize("at", range(checkpoint.FILE_BYTES))
def test_a_checkpoint_with_a_changed_byte_leads_to_a_rebuild(folder: Path, at: int) -> None:
    log = small_log()
    built(folder, log)
    path = folder / checkpoint.FILE_NAME
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)
    store = opened(folder, log)

    assert store.built_index == -1
    assert units_of(store, log) == {}
    assert not path.exists()


def test_queues_of_another_log_are_rebuilt(folder: Path) -> None:
    built(folder, small_log())
    shorter = Log().extend([Send("U", 0)])
    store = opened(folder, shorter)

    assert units_of(store, small_log()) == {}
    add(store, shorter, 1)
    assert units_of(store, small_log()) == {("U", 0): shorter.units["U", 0]}
    store.close()


def test_queues_are_rebuilt_from_the_first_entry_that_the_log_still_has(folder: Path) -> None:
    log = small_log()
    store = opened(folder, log, begin_index=2)
    assert store.built_index == 1

    add(store, log, len(log.entries))

    assert store.units("T", 0, 0, 9) == []
    assert store.units("T", 0, 1, 9) == log.units["T", 0][1:]
    store.close()


def test_nothing_is_saved_before_something_was_added(folder: Path) -> None:
    store = opened(folder, small_log())
    store.save()

    assert not (folder / checkpoint.FILE_NAME).exists()


def test_everything_is_synced_before_the_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().relative_to(folder))
        sync(descriptor)

    monkeypatch.setattr("os.fsync", note)
    log = Log().extend([Send("T", 0), Send("U", 1), TopicDeleted(topic="U")])
    store = opened(folder, log)
    add(store, log, 2)
    add(store, log, 3)
    store.save()
    store.close()

    queues = Path("consumequeue")
    before = synced[: synced.index(Path("checkpoint.tmp"))]
    assert {
        Path(), queues, queues / "T", queues / "T" / "0", queues / "T" / "0" / f"{0:020d}",
        queues / STATE_TOPIC / "0" / f"{0:020d}",
    } <= set(before)  # fmt: skip
    assert synced[-1] == Path()


def test_the_entries_since_the_last_save_are_counted_with_those_of_leaders(folder: Path) -> None:
    log = Log().extend([Send("T", 0), Prepared("T"), Send("T", 0)])
    store = opened(folder, log)
    add(store, log, 2)
    assert store.unsaved_entries == 2
    store.save()

    assert store.unsaved_entries == 0
    store.close()


# Files.


def test_a_unit_is_written_where_its_offset_says_and_a_hole_stays_visible(folder: Path) -> None:
    files = QueueFiles(folder, file_bytes=FILE_BYTES)
    unit = bytes(range(1, 21))
    files.write(QueueId("T", 0), 7, unit * 2)

    assert [len(files.read(QueueId("T", 0), first, 9)) for first in (0, 6, 7, 8, 9)] == [
        0,
        0,
        2,
        1,
        0,
    ]
    assert list(contents(folder)) == [Path("T/0/00000000000000000100")]
    files.write(QueueId("T", 0), 6, unit)
    files.write(QueueId("T", 0), 6, unit)
    assert len(files.read(QueueId("T", 0), 5, 9)) == 0
    assert len(files.read(QueueId("T", 0), 6, 2)) == 2
    files.close()


def test_a_run_continues_in_the_next_file(folder: Path) -> None:
    files = QueueFiles(folder, file_bytes=FILE_BYTES)
    files.write(QueueId("T", 0), 3, bytes(range(1, 21)) * 9)

    assert sorted(path.name for path in contents(folder)) == [
        f"{begin:020d}" for begin in (0, 100, 200)
    ]
    assert [len(files.read(QueueId("T", 0), first, 99)) for first in (3, 5, 10)] == [2, 5, 2]
    files.close()


def test_many_queues_are_written_with_a_bounded_number_of_open_files(folder: Path) -> None:
    files = QueueFiles(folder, file_bytes=FILE_BYTES)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for queue_id in range(OPEN_FILES_MAX + 50):
        files.write(QueueId("T", queue_id), 0, bytes(range(1, 21)))
    opened_now = len(list(Path("/proc/self/fd").iterdir())) - before
    files.write(QueueId("T", 0), 1, bytes(range(1, 21)))
    files.sync(files.take_unsynced())

    assert opened_now <= OPEN_FILES_MAX
    assert len(files.read(QueueId("T", 0), 0, 9)) == 2
    files.close()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_a_file_that_cannot_be_written_is_named(folder: Path) -> None:
    (folder / "T").mkdir(parents=True)
    (folder / "T" / "0").write_bytes(b"in the way")

    with pytest.raises(QueueFilesError, match="T/0"):
        QueueFiles(folder).write(QueueId("T", 0), 0, bytes(20))
    assert QueueFiles(folder).read(QueueId("T", 0), 0, 1) == []


def test_queues_may_be_deleted_while_the_member_is_stopped(folder: Path) -> None:
    log = small_log()
    built(folder, log)
    expected = contents(folder)
    shutil.rmtree(folder)
    built(folder, log)

    assert contents(folder) == expected


# Entries.


def entry(record: MessageRecord) -> CommittedEntry:
    return CommittedEntry(5, bytes(message_record.encode(record)))


@pytest.mark.parametrize(
    "record",
    [
        MessageRecord("../T", 0, 0, 48, b""),
        MessageRecord("T", -1, 0, 48, b""),
        MessageRecord("T", 0, -1, 48, b""),
        MessageRecord("T", 0, 1 << 62, 48, b""),
        MessageRecord(STATE_TOPIC, 0, 0, 48, b'{"kind":"topicDeleted"}'),
    ],
    ids=["topic", "queue", "offset", "large offset", "state record"],
)
def test_an_entry_that_no_broker_wrote_writes_no_file(record: MessageRecord) -> None:
    with pytest.raises(NotABrokerLogError, match="entry 5"):
        changes_of([entry(record)])


def test_bytes_that_are_no_message_write_no_file() -> None:
    with pytest.raises(NotABrokerLogError, match="entry 9"):
        changes_of([CommittedEntry(9, b"x" * 200)])


def test_the_state_s_own_queue_cannot_be_deleted() -> None:
    body = state_records.encode(TopicDeleted(topic=STATE_TOPIC))
    changes = changes_of([entry(MessageRecord(STATE_TOPIC, 0, 0, 48, body))])

    assert not changes.deleted
    assert QueueId(STATE_TOPIC, 0) in changes.runs


def test_each_queue_of_a_batch_is_one_run() -> None:
    log = Log().extend([Send("T", number % 2) for number in range(20)])
    runs = changes_of(log.batch(0, 20)).runs

    assert {
        queue: [(run.first_unit, len(run.units)) for run in each] for queue, each in runs.items()
    } == {
        QueueId("T", 0): [(0, 200)],
        QueueId("T", 1): [(0, 200)],
    }
