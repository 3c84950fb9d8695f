"""How entries get into the consume queues: in the event loop, or in a thread, and when saved."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dledger_broker.errors import NotABrokerLogError
from dledger_broker.queues import feed as feeds
from dledger_broker.queues.builder import QueueId
from dledger_broker_client.staged_feed import Stage
from dledger_broker_log.logs import Log, Send
from dledger_formats.rocketmq.state_records import TopicDeleted
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.state_machine.machine import CommittedEntry
from dledger_wire.listener import until


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(tmp_path, Log().extend([Send("T", 0), Send("U", 1)] * 10))
    await made.open()
    yield made
    await made.feed.close()


async def test_a_few_entries_in_memory_are_added_at_once(stage: Stage) -> None:
    stage.member.apply(1)

    assert stage.feed.built_index == 1
    assert stage.built == [QueueId("T", 0), QueueId("U", 1)]
    assert stage.member.threads == [threading.current_thread().name]
    assert stage.store.units("T", 0, 0, 9) == stage.member.log.units["T", 0][:1]


async def test_many_entries_are_the_work_of_a_thread(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "LOOP_ENTRIES_MAX", 4)
    await stage.reach(4)
    assert stage.member.threads == ["queues_0"]

    await stage.reach(8)
    assert stage.member.threads[1:] == [threading.current_thread().name]


async def test_entries_that_are_not_in_memory_are_the_work_of_a_thread(stage: Stage) -> None:
    stage.member.is_in_memory = False
    await stage.reach(3)
    stage.member.is_in_memory = True
    await stage.reach(19)

    assert stage.member.threads == ["queues_0", threading.current_thread().name]
    assert stage.has_all()


async def test_threads_and_the_event_loop_take_turns(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "WRITE_UNITS", 2)
    for index in range(20):
        stage.member.is_in_memory = index % 3 != 0
        stage.member.apply(index)
        if index % 5 == 0:
            await asyncio.sleep(0)
    await until(lambda: stage.feed.built_index == 19)

    assert stage.has_all()
    assert set(stage.built) == {QueueId("T", 0), QueueId("U", 1)}


async def test_what_is_in_memory_is_saved_in_time(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "SAVE_S", 0.02)
    await stage.reach(9)
    await until(lambda: stage.feed.saved_index == 9)
    await stage.reach(10)
    await until(lambda: stage.feed.saved_index == 10 and stage.store.unwritten_units == 0)

    assert set(stage.member.threads) == {threading.current_thread().name}


async def test_much_in_memory_is_written_before_it_is_time_to_save(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "WRITE_UNITS", 4)
    await stage.reach(3)
    await until(lambda: stage.store.unwritten_units == 0)

    assert stage.feed.saved_index == -1


async def test_a_stop_saves_what_is_in_memory(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Log().extend([Send("T", 0)] * 20))
    await stage.open()
    await stage.reach(19)
    await stage.feed.close()
    again = Stage(tmp_path, stage.member.log)
    await again.open()

    assert again.feed.saved_index == again.feed.built_index == 19
    assert again.has_all()
    await again.feed.close()


async def test_a_full_disk_is_tried_again_and_costs_no_reader_anything(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(feeds, "SAVE_S", 0.01)
    monkeypatch.setattr(feeds, "RETRY_S", 0.05)

    def refuse(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr("os.pwrite", refuse)
        for index in range(20):
            stage.member.apply(index)
        await until(lambda: "No space left" in caplog.text)
        assert stage.feed.built_index == 19
        assert stage.has_all()
    await until(lambda: stage.feed.saved_index == 19)
    assert stage.has_all()


async def test_each_try_is_logged_once_however_much_is_applied_meanwhile(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage.member.damage = StoreDamagedError("rotten", Damage.BAD_ENTRY, 0)
    with caplog.at_level(logging.WARNING):
        stage.member.apply(0)
        await until(lambda: "rotten" in caplog.text)
        for index in range(1, 20):
            stage.member.apply(index)
            await asyncio.sleep(0)

    assert caplog.text.count("rotten") == 1


async def test_a_deleted_topic_is_the_work_of_a_thread(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Log().extend([Send("T", 0), TopicDeleted(topic="T"), Send("T", 0)]))
    await stage.open()
    await stage.reach(0)
    await stage.reach(1)
    await stage.reach(2)

    assert stage.member.threads[-1] == threading.current_thread().name
    assert stage.has_all()
    await stage.feed.close()


async def test_nobody_tries_again_what_is_the_work_of_a_busy_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each message would decode all that wait, for as long as the disk stalls."""
    stage = Stage(
        tmp_path, Log().extend([Send("T", 0), TopicDeleted(topic="T"), *[Send("T", 0)] * 20])
    )
    await stage.open()
    may_end = threading.Event()
    monkeypatch.setattr(feeds, "WRITE_UNITS", 1)
    write = stage.store.write

    def slow_write() -> Any:
        assert may_end.wait(30)
        return write()

    monkeypatch.setattr(stage.store, "write", slow_write)
    for index in range(22):
        stage.member.apply(index)
    reads = len(stage.member.threads)
    may_end.set()
    await until(lambda: stage.feed.built_index == 21)

    assert reads == 2, "one that was kept, and one that was not"
    assert stage.has_all()
    await stage.feed.close()


async def test_an_entry_that_is_no_message_stops_the_member(stage: Stage) -> None:
    stage.member.log.entries[3] = CommittedEntry(3, b"no record")
    stage.member.apply(5)
    await until(lambda: bool(stage.member.failed))

    assert isinstance(stage.member.failed[0], NotABrokerLogError)


async def test_queues_that_are_built_again_forget_what_is_in_memory(stage: Stage) -> None:
    await stage.reach(19)
    stage.feed.rebuild("a test", stage.feed.rebuilds)
    await until(lambda: not stage.feed.is_rebuilding)

    assert stage.member.threads[-1] == "queues_0"
    assert stage.store.unwritten_units == 0
    assert stage.has_all()


async def test_a_reader_of_the_newest_units_may_have_all_queues_built_again(tmp_path: Path) -> None:
    """A reader is told of new units in the middle of the turn that adds them."""
    stage = Stage(tmp_path, Log().extend([Send("T", 0)] * 4))
    feed = stage.feed

    def built(queues: Any) -> None:
        if list(queues) and not feed.rebuilds:
            feed.rebuild("a test", 0)

    feed._built = built
    await stage.open()
    stage.member.apply(3)
    await until(lambda: feed.rebuilds == 1 and not feed.is_rebuilding)

    assert stage.has_all()
    await feed.close()
