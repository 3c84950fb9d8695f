"""Pulls that the event loop serves itself: only from the page cache, and only short ones."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_broker.queues import read_files
from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.cached_reads import BYTES_MAX, cached_reader
from dledger_broker.queues.errors import NotCachedError
from dledger_broker.queues.files import QueueFiles
from dledger_broker.queues.open_file import OpenFile
from dledger_broker.queues.queue_store import QueueStore
from dledger_broker.queues.read_files import READ_FILES_MAX, ReadFiles
from dledger_broker.queues.reader import Found, Wanted
from dledger_broker_client.client import BrokerClient
from dledger_broker_log.logs import Log, Send
from dledger_formats.log import disk
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.consume_queue import UNIT, Unit
from dledger_node.store.segments import page_cache
from tools.groups.broker_group import BrokerGroup
from tools.groups.turns import metrics

QUEUE = QueueId("orders", 1)
COUNT = 4
ONE = Unit(100, 50, 0)


class Cached:
    """A log and its queues, of which the page cache has what the test says."""

    def __init__(self, folder: Path, body: bytes = b"body") -> None:
        self.log = Log().extend([Send(*QUEUE, body=body)] * COUNT)
        raw, chain_crc = bytearray(), 0
        for index, entry in enumerate(self.log.entries):
            assert entry is not None
            data, _, chain_crc = disk.pack_entries(
                [entry.body], magic=disk.NORMAL, first_index=index, term=1, pos=len(raw),
                previous_chain_crc=chain_crc,
            )  # fmt: skip
            raw += data
        self._raw = bytes(raw)
        self.store = QueueStore.open(folder, begin_index=0, mark_of=self.log.mark)
        mark = self.log.mark(COUNT - 1)
        assert mark is not None
        self.store.add(self.log.batch(0, COUNT), mark)
        self.begin_index, self.known_begin_pos = 0, self.begin_pos
        self.has_log = self.has_queues = True

    begin_pos: int | None = 0

    def cached_at(self, pos: int, buffer: memoryview) -> bool:
        found = self._raw[pos : pos + len(buffer)]
        buffer[: len(found)] = found
        return self.has_log and len(found) == len(buffer)

    def read_cached(self, fd: int, buffer: bytearray, at: int) -> int:
        return os.preadv(fd, [buffer], at) if self.has_queues else 0

    def pull(self, offset: int = 0) -> Found:
        """Pull from an offset on. Raises NotCachedError."""
        reader = cached_reader(self.store, self, lambda _: 0)
        assert reader.kept.min_offset(QUEUE, COUNT, has_all=False) == 0
        return reader.pull(QUEUE, offset, COUNT, Wanted(None, 32, 1 << 18))


@pytest.fixture
def cached(tmp_path: Path) -> Iterator[Cached]:
    made = Cached(tmp_path)
    made.store.units(*QUEUE, 0, 1)  # a thread has opened the file
    yield made
    made.store.close()


def test_messages_in_the_page_cache_are_returned(cached: Cached) -> None:
    found = cached.pull()

    assert found.records == [entry.body for entry in cached.log.entries if entry is not None]
    assert (found.next_offset, found.is_complete) == (COUNT, True)
    assert cached.pull(3).records == found.records[3:]


def test_messages_of_one_pull_outlive_the_next_one(cached: Cached) -> None:
    """All runs are read into one buffer."""
    found = cached.pull()
    before = list(map(bytes, found.records))
    cached.pull(2)

    assert found.records == before


@pytest.mark.parametrize("lacking", ["has_log", "has_queues"])
def test_what_is_not_in_the_page_cache_is_left_to_a_thread(cached: Cached, lacking: str) -> None:
    setattr(cached, lacking, False)

    with pytest.raises(NotCachedError):
        cached.pull()


def test_a_queue_whose_file_is_not_open_is_left_to_a_thread(tmp_path: Path) -> None:
    made = Cached(tmp_path)

    with pytest.raises(NotCachedError):
        made.pull()
    made.store.close()


def test_where_the_log_begins_is_left_to_a_thread_if_that_takes_a_read(cached: Cached) -> None:
    cached.known_begin_pos = None

    with pytest.raises(NotCachedError, match="where the log begins"):
        cached.pull()


def test_long_messages_are_left_to_a_thread(tmp_path: Path) -> None:
    made = Cached(tmp_path, body=bytes(BYTES_MAX // COUNT))
    made.store.units(*QUEUE, 0, 1)

    with pytest.raises(NotCachedError):
        made.pull()
    assert len(made.pull(1).records) == COUNT - 1
    made.store.close()


def opened_in(folder: Path) -> list[str]:
    """Return the files of a folder that this process has open."""
    descriptors = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    return [path for path in descriptors if str(folder) in path]


def test_the_files_of_a_deleted_topic_are_not_read_any_more_and_not_kept_open(
    tmp_path: Path,
) -> None:
    other = QueueId("other", 0)
    files = QueueFiles(tmp_path)
    for queue in (QUEUE, other):
        files.write(queue, 0, UNIT.pack(*ONE))
        assert files.read(queue, 0, 1)
    files.delete_topic(QUEUE.topic)

    assert not opened_in(tmp_path / QUEUE.topic)
    assert files.read(QUEUE, 0, 1) == []
    assert files.read(other, 0, 1) == [ONE]
    files.close()


def test_files_that_nobody_uses_any_longer_are_closed(tmp_path: Path) -> None:
    """Members of the simulator die without closing anything: each kept its files open."""
    files = QueueFiles(tmp_path)
    files.write(QUEUE, 0, UNIT.pack(*ONE))
    assert files.read(QUEUE, 0, 1) == [ONE]
    assert len(opened_in(tmp_path)) == 2
    del files

    assert not opened_in(tmp_path)


def test_a_file_that_is_opened_again_while_its_topic_is_deleted_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queues that were built again were read from their deleted files."""
    files = QueueFiles(tmp_path)
    files.write(QUEUE, 0, UNIT.pack(*ONE))
    remove = shutil.rmtree

    def read_and_remove(folder: Path) -> None:
        assert files.read(QUEUE, 0, 1) == [ONE]
        remove(folder)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", read_and_remove)
        files.delete_topic(QUEUE.topic)

    assert files.read(QUEUE, 0, 1) == []
    files.close()


def test_a_file_that_is_opened_while_files_are_forgotten_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, path = ReadFiles(), tmp_path / "one"
    path.touch()

    def made(path: Path, flags: int) -> OpenFile:
        files.forget(tmp_path)
        return OpenFile(path, flags)

    with monkeypatch.context() as patch:
        patch.setattr(read_files, "OpenFile", made)
        files.open(QUEUE, 0, path)

    assert files.find(QUEUE, 0) is None


def test_so_many_files_are_kept_open_for_reading_and_no_more(tmp_path: Path) -> None:
    files, path = ReadFiles(), tmp_path / "one"
    path.touch()
    for number in range(READ_FILES_MAX + 10):
        files.open(QueueId("orders", number), 0, path)

    assert len(opened_in(tmp_path)) == READ_FILES_MAX
    assert files.find(QueueId("orders", 9), 0) is None
    assert files.find(QueueId("orders", 10), 0) is not None
    files.close()
    assert not opened_in(tmp_path)


def test_pulls_return_the_same_again_and_again(broker: BrokerGroup, client: BrokerClient) -> None:
    """The first one is read in a thread, and opens the files for the others."""
    member = next(iter(broker.peers))
    before = metrics(broker, member)["dledger_broker_cached_pulls_total"]
    for number in range(40):
        client.send("again", b"%d" % number)
    answers = [client.pull("again", 5) for _ in range(4)]

    assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
    assert len({answer.body for answer in answers}) == 1
    served = metrics(broker, member)["dledger_broker_cached_pulls_total"] - before
    assert served >= 3 or not can_tell_what_is_cached(broker.folder)


def can_tell_what_is_cached(folder: Path) -> bool:
    """Return whether the file system of a folder can; tmpfs cannot."""
    path = folder / "cached"
    path.write_bytes(b"x")
    with path.open("rb") as file:
        return page_cache.read_cached(file.fileno(), bytearray(1), 0) == 1
