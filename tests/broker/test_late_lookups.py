"""Requests about queues: those that cannot be answered in time, and the age of a queue."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from dledger_broker.door.calls.call import Call
from dledger_broker.door.reading.group_offsets import GroupOffsets
from dledger_broker.door.reading.proofs import Proofs
from dledger_broker.door.reading.queue_offsets import LOOK_UP_S, QueueOffsets, young_bytes
from dledger_broker.metrics import BrokerCounters
from dledger_broker.queues.errors import NotBuiltError
from dledger_broker_client.answer_keeper import AnswerKeeper
from dledger_broker_client.proven_member import ProvenMember
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode

LEFT_S = 0.2


@pytest.mark.parametrize("is_read_slowly", [True, False])
async def test_a_look_up_ends_in_time_counted_from_its_arrival(is_read_slowly: bool) -> None:
    may_end = threading.Event()

    def kept_offset(*_: object, has_all: bool) -> int:
        if is_read_slowly:
            may_end.wait(30)
            return 0
        raise NotBuiltError("units lack")

    state = SimpleNamespace(
        tables=SimpleNamespace(topics=SimpleNamespace(has_queue=lambda *_: True)),
        next_offset=lambda *_: 5,
    )
    owner: Any = SimpleNamespace(state=state, created_index=lambda _: 0)
    feed: Any = SimpleNamespace(has_all=False, rebuilds=0)
    reader: Any = SimpleNamespace(kept=SimpleNamespace(kept_offset=kept_offset))
    channel: Any = AnswerKeeper()
    door: Any = SimpleNamespace(counters=BrokerCounters())
    now_s = asyncio.get_running_loop().time
    with ThreadPoolExecutor(1) as threads:
        offsets = QueueOffsets(owner, feed, reader, Proofs(ProvenMember()), threads, 0)
        request = RemotingCommand(
            code=int(RequestCode.GET_MIN_OFFSET),
            opaque=1,
            ext_fields={"topic": "t", "queueId": "0"},
        )
        begun_s = now_s()
        offsets.min_offset(Call(channel, request, door, begun_s - LOOK_UP_S + LEFT_S))
        try:
            async with asyncio.timeout(LOOK_UP_S - LEFT_S):
                await channel.answered.wait()
        finally:
            may_end.set()

    [answer] = channel.answers
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "in time" in (answer.remark or "")
    assert channel.reads_waiting == 0


@pytest.mark.parametrize(
    ("kept", "end", "at", "expected"),
    [(0, 5, 100, 0), (0, 5, 99, None), (1, 5, 900, None), (0, 0, 900, None)],
)
async def test_a_queue_is_young_while_its_first_message_lies_near_the_end_of_the_log(
    kept: int, end: int, at: int, expected: int | None
) -> None:
    topics = SimpleNamespace(has_queue=lambda *_: True)
    tables = SimpleNamespace(topics=topics, last_physical_offset=1000)
    state = SimpleNamespace(tables=tables, next_offset=lambda *_: end)
    owner: Any = SimpleNamespace(state=state, created_index=lambda _: 0)
    feed: Any = SimpleNamespace(has_all=True, rebuilds=0)
    reader: Any = SimpleNamespace(
        kept=SimpleNamespace(kept_offset=lambda *_, has_all: kept), position=lambda *_: at
    )
    commits: Any = SimpleNamespace(newest=lambda *_: None)
    channel: Any = AnswerKeeper()
    door: Any = SimpleNamespace(counters=BrokerCounters())
    with ThreadPoolExecutor(1) as threads:
        proofs = Proofs(ProvenMember())
        queues = QueueOffsets(owner, feed, reader, proofs, threads, young_bytes=900)
        request = RemotingCommand(
            code=int(RequestCode.QUERY_CONSUMER_OFFSET),
            opaque=1,
            ext_fields={"topic": "t", "queueId": "0", "consumerGroup": "g"},
        )
        call = Call(channel, request, door, asyncio.get_running_loop().time())
        GroupOffsets(commits, queues, proofs).query(call)
        async with asyncio.timeout(10):
            await channel.answered.wait()

    [answer] = channel.answers
    if expected is None:
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
    else:
        assert (answer.code, answer.ext_fields) == (ResponseCode.SUCCESS, {"offset": "0"})


def test_a_member_without_a_limit_counts_on_the_memory_of_its_host() -> None:
    assert young_bytes(1000) == 400
    assert young_bytes(0) > 100 << 20
