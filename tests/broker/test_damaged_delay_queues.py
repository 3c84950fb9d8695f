"""Damaged queues of delayed messages are built again also at members that do not deliver them."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from dledger_broker.queues.reader import UnitRefusedError
from dledger_broker.queues.undelivered import UndeliveredMessages

FIRST_SEEN = 3


class Feed:
    """Queues that have all messages, or not, and are built again on demand."""

    def __init__(self, *, has_all: bool) -> None:
        self.has_all = has_all
        self.rebuilds = FIRST_SEEN
        self.reasons: list[str] = []

    def rebuild(self, reason: str, seen_rebuilds: int) -> None:
        assert seen_rebuilds == FIRST_SEEN, "it takes note before it reads"
        self.reasons.append(reason)


def one_level(level: int) -> int:
    return 5 if level == 1 else 10


async def looked(feed: Feed, index_of: Callable[..., int | None]) -> int:
    """Look once for messages of level 1 that wait; return what the log need not keep."""
    state: Any = SimpleNamespace(delay_position=one_level, next_offset=lambda *_: 10)
    member: Any = SimpleNamespace(applied_index=7, machine=lambda _: state)
    reader: Any = SimpleNamespace(index_of=index_of)
    queues: Any = feed
    with ThreadPoolExecutor(1) as threads:
        undelivered = UndeliveredMessages(member, queues, reader, threads)
        undelivered.tick()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
    return undelivered.covered_index


def refused(feed: Feed) -> int:
    feed.rebuilds += 1
    raise UnitRefusedError("a unit contradicts the log")


@pytest.mark.parametrize("has_all", [True, False])
async def test_queues_that_have_all_messages_and_contradict_the_log_are_built_again(
    has_all: bool,
) -> None:
    feed = Feed(has_all=has_all)
    covered = await looked(feed, lambda *_, **__: refused(feed))

    assert feed.reasons == ["a unit contradicts the log"] * has_all
    assert covered == -1, "the log keeps what may wait"


async def test_the_log_keeps_the_first_message_that_waits() -> None:
    feed = Feed(has_all=True)

    assert await looked(feed, lambda *_, **__: 4) == 3
    assert feed.reasons == []
