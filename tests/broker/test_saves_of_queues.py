"""Saves of the consume queues: they wait for the disk, and nothing waits for them."""

import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dledger_broker.queues import feed as feeds
from dledger_broker.queues import files, unwritten
from dledger_broker_client.staged_feed import Stage
from dledger_broker_log.logs import Log, Send
from dledger_wire.listener import until


class SlowDisk:
    """A disk whose syncs end when the test says so, perhaps with an error."""

    def __init__(self) -> None:
        self.synced: list[Path] = []
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.error: OSError | None = None

    def sync(self, path: Path) -> None:
        self.begun.set()
        assert self.may_end.wait(30)
        if self.error is not None:
            raise self.error
        os.stat(path)
        self.synced.append(path)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    """Return the disk of the queues."""
    made = SlowDisk()
    monkeypatch.setattr(files, "sync", made.sync)
    monkeypatch.setattr(feeds, "SAVE_S", 0.01)
    return made


async def begun(folder: Path, disk: SlowDisk) -> Stage:
    """Return a feed whose first save, up to entry 1, has begun and waits for the disk."""
    sends = [Send(topic, 0) for topic in "TUVWXYZ"]
    stage = Stage(folder, Log().extend(sends * 3))
    await stage.open()
    await stage.reach(1)
    await until(disk.begun.is_set)
    return stage


@pytest.fixture
async def stage(tmp_path: Path, disk: SlowDisk) -> AsyncIterator[Stage]:
    """Return such a feed."""
    made = await begun(tmp_path, disk)
    yield made
    disk.may_end.set()
    await made.feed.close()


async def test_messages_of_many_queues_are_built_while_a_save_waits_for_the_disk(
    stage: Stage, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of files may have to be synced, and only so many queues have units in memory."""
    monkeypatch.setattr(unwritten, "QUEUES_MAX", 2)

    await stage.reach(20)

    assert stage.has_all()
    assert stage.feed.saved_index == -1
    disk.may_end.set()
    await until(lambda: stage.feed.saved_index == 20)


async def test_what_could_not_be_synced_is_synced_later(
    stage: Stage, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "RETRY_S", 0.01)
    disk.error = OSError(5, "Input/output error")
    disk.may_end.set()
    await until(lambda: stage.feed._retry is not None)
    assert stage.feed.saved_index == -1

    disk.error = None
    await until(lambda: stage.feed.saved_index == 1)

    names = {path.name for path in disk.synced}
    assert {"T", "U", "consumequeue"} <= names
    assert sum(path.name.isdigit() and len(path.name) == 20 for path in disk.synced) == 2


async def test_a_feed_that_closes_ends_the_save_under_way_and_saves_the_rest(
    tmp_path: Path, disk: SlowDisk
) -> None:
    stage = await begun(tmp_path, disk)
    await stage.reach(5)
    disk.may_end.set()
    await stage.feed.close()
    again = Stage(tmp_path, stage.member.log)
    await again.open()

    assert again.feed.saved_index == 5
    await again.feed.close()
