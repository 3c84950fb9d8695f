"""Units that a queue gets while a thread reads it for a pull: the pull does not wait for others."""

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from dledger_broker.door.calls.call import Call
from dledger_broker.door.reading.proofs import Proofs
from dledger_broker.door.reading.pulls import Pulls
from dledger_broker.metrics import BrokerCounters
from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.errors import NotBuiltError, UnitRefusedError
from dledger_broker.queues.reader import Found
from dledger_broker.state import changes
from dledger_broker.state.broker_state import BrokerState
from dledger_broker_client.answer_keeper import AnswerKeeper
from dledger_broker_client.client import pull_ext
from dledger_broker_client.proven_member import ProvenMember
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.state_records import TopicSet
from dledger_formats.rocketmq.topics import TopicConfig
from dledger_wire.listener import until

QUEUE = QueueId("t", 0)
CONFIG = TopicConfig(topic_name="t", read_queue_nums=1, write_queue_nums=1, perm=6)


class Feed:
    """The queues' feed, as the test sets it."""

    def __init__(self) -> None:
        self.has_all, self.rebuilds = False, 0

    def rebuild(self, _reason: str, seen_rebuilds: int) -> None:
        """Begin to build all queues again, unless they were since."""
        if seen_rebuilds == self.rebuilds:
            self.rebuilds += 1
            self.has_all = False


class Reading:
    """A member that reads a queue of one message for a pull, whose first read waits for the test
    and finds nothing.
    """

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.missed: Exception | None = NotBuiltError("no unit")
        """What the first read raises; without it the read finds no unit."""
        self.reads = 0
        self._may_end = threading.Event()
        state = BrokerState()
        changes.make(state.tables, TopicSet(config=CONFIG), 0, 1)
        state.tables.topics.by_name["t"].next_offsets[0] = 1
        owner: Any = SimpleNamespace(state=state, is_proven=True, created_index=lambda _: 0)
        clients: Any = SimpleNamespace(is_broadcasting=lambda *_: False)
        kept = SimpleNamespace(min_offset=lambda *_, **__: 0)
        reader: Any = SimpleNamespace(kept=kept, pull=self._pull)
        self.feed, self.channel, member = Feed(), AnswerKeeper(), ProvenMember()
        feed: Any = self.feed
        self.pulls = Pulls(owner, clients, feed, reader, threads, member, Proofs(member), print)

    def _pull(self, *_: object) -> Found:
        self.reads += 1
        if self.reads > 1:
            return Found(1, [b"message"], is_complete=True)
        assert self._may_end.wait(30)
        if self.missed is not None:
            raise self.missed
        return Found(0, [], is_complete=False)

    async def begin(self) -> None:
        """Ask for the message; return while a thread reads for it."""
        door: Any = SimpleNamespace(counters=BrokerCounters())
        held = {"sysFlag": "6", "suspendTimeoutMillis": "20000"}
        command = RemotingCommand(
            code=int(RequestCode.PULL_MESSAGE), opaque=1, ext_fields=pull_ext("t", 0) | held
        )
        channel: Any = self.channel
        self.pulls.pull(Call(channel, command, door, asyncio.get_running_loop().time()))
        await until(lambda: self.reads == 1)

    async def end(self) -> None:
        """Let the thread miss the message, and wait until the pull is answered or held."""
        self._may_end.set()
        await until(lambda: bool(self.channel.answers or self.pulls.held.count))


@pytest.fixture
async def reading() -> AsyncIterator[Reading]:
    with ThreadPoolExecutor(1) as threads:
        yield Reading(threads)


@pytest.mark.parametrize(
    "missed",
    [NotBuiltError("no unit"), UnitRefusedError("another message"), None],
    ids=["not built", "refused", "no unit found"],
)
async def test_a_pull_is_served_again_if_its_queue_got_units_while_it_was_read(
    reading: Reading, missed: Exception | None
) -> None:
    """Nobody wakes it later: it waited for the next message of its queue, or for 20 s."""
    reading.missed = missed
    await reading.begin()
    reading.pulls.built([QUEUE])
    await reading.end()

    assert [answer.code for answer in reading.channel.answers] == [ResponseCode.SUCCESS]


async def test_a_pull_is_served_again_if_all_queues_were_complete_meanwhile(
    reading: Reading,
) -> None:
    """They show what is removed, without a unit of its queue."""
    await reading.begin()
    reading.feed.has_all = True
    await reading.end()

    assert [answer.code for answer in reading.channel.answers] == [ResponseCode.SUCCESS]


async def test_a_pull_is_served_again_if_all_queues_were_built_again_meanwhile(
    reading: Reading,
) -> None:
    """Another reader had them built; what this one has found tells nothing of the new ones."""
    reading.missed, reading.feed.has_all = UnitRefusedError("another message"), True
    await reading.begin()
    reading.feed.rebuilds += 1
    await reading.end()

    assert [answer.code for answer in reading.channel.answers] == [ResponseCode.SUCCESS]
    assert reading.feed.rebuilds == 1


@pytest.mark.parametrize(
    "missed", [NotBuiltError("no unit"), UnitRefusedError("another message"), None]
)
async def test_a_pull_is_held_while_only_other_queues_get_units(
    reading: Reading, missed: Exception | None
) -> None:
    """While all queues are built again, each pull would else be read again and again."""
    reading.missed = missed
    await reading.begin()
    reading.pulls.built([QueueId("t", 1), QueueId("other", 0)])
    await reading.end()

    assert reading.pulls.held.count == 1
    assert not reading.channel.answers
    reading.pulls.built([QUEUE])
    await until(lambda: bool(reading.channel.answers))
    assert reading.reads == 2
