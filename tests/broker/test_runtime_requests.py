"""Requests for the figures of a member (28): where its log begins may have to be read from disk."""

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from dledger_broker.door.administration.tables import TableRequests
from dledger_broker.door.calls.call import Call
from dledger_broker.metrics import BrokerCounters
from dledger_broker.state.broker_state import BrokerState
from dledger_broker_client.answer_keeper import AnswerKeeper
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.names import RuntimeInfo


class Member:
    """A member whose disk answers no read until it may."""

    self_id, leader_id, applied_index = "n0", "n0", 5

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.error: Exception | None = None

    @property
    def begin_pos(self) -> int:
        assert self.may_answer.wait(10), "the event loop waits for the disk"
        if self.error is not None:
            raise self.error
        return 4096


@pytest.mark.parametrize("error", [None, IndexError("the entry was removed")])
async def test_the_event_loop_does_not_wait_for_the_disk(error: Exception | None) -> None:
    channel: Any = AnswerKeeper()
    door: Any = SimpleNamespace(counters=BrokerCounters())
    owner: Any = SimpleNamespace(state=BrokerState())
    member: Any = Member()
    nothing: Any = None
    with ThreadPoolExecutor(1) as threads:
        tables = TableRequests(nothing, member, owner, threads, Counter())
        code = int(RequestCode.GET_BROKER_RUNTIME_INFO)
        tables.runtime(Call(channel, RemotingCommand(code=code, opaque=1), door, 0.0))
        await asyncio.sleep(0)
        assert channel.reads_waiting == 1

        member.error = error
        member.may_answer.set()
        async with asyncio.timeout(10):
            await channel.answered.wait()

    [answer] = channel.answers
    assert channel.reads_waiting == 0
    if error is not None:
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, str(error))
    else:
        assert RuntimeInfo.from_json(answer.body).table["commitLogMinOffset"] == "4096"
