"""Messages that a consumer gives back, and that a thread reads too late."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from dledger_broker.door.calls.call import Call
from dledger_broker.door.sending.returns import Returns
from dledger_broker.metrics import BrokerCounters
from dledger_broker_client.answer_keeper import AnswerKeeper
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_node.services.drafts import HOLD_S


async def test_a_message_that_is_read_too_late_is_not_stored_again() -> None:
    """Its client has another answer by then, and has sent the message again itself."""
    groups = SimpleNamespace(configs={"g": object()})
    owner: Any = SimpleNamespace(state=SimpleNamespace(tables=SimpleNamespace(groups=groups)))
    channel: Any = AnswerKeeper()
    door: Any = SimpleNamespace(counters=BrokerCounters())
    command = RemotingCommand(
        code=int(RequestCode.CONSUMER_SEND_MSG_BACK), opaque=1,
        ext_fields={"offset": "0", "group": "g", "delayLevel": "0"},
    )  # fmt: skip
    call = Call(channel, command, door, asyncio.get_running_loop().time())

    def at(offset: int) -> object:
        call.arrived_s -= HOLD_S
        return object()

    reader: Any = SimpleNamespace(at=at)
    nothing: Any = None
    with ThreadPoolExecutor(1) as threads:
        returns = Returns(nothing, owner, reader, nothing, threads, lambda: bytes(8))
        returns._store = lambda *_: pytest.fail("it is stored")  # type: ignore[method-assign]
        returns.take(call)
        await asyncio.wait_for(channel.answered.wait(), 30)

    [answer] = channel.answers
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "is not stored" in (answer.remark or "")
