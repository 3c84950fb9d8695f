"""Thousands of pulls that are held: no turn of the event loop serves or answers all of them."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_broker.door.calls.call import Call
from dledger_broker.door.reading.held_pulls import HeldPulls
from dledger_broker.door.reading.proofs import Proofs
from dledger_broker.door.reading.pulls import Pulls
from dledger_broker.errors import QueueFilesError
from dledger_broker.metrics import BrokerCounters
from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.errors import UnreadableError
from dledger_broker.state import changes
from dledger_broker.state.broker_state import BrokerState
from dledger_broker_client.answer_keeper import AnswerKeeper
from dledger_broker_client.client import pull_ext
from dledger_broker_client.proven_member import ProvenMember
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.state_records import TopicSet
from dledger_formats.rocketmq.topics import TopicConfig
from dledger_node.errors import Damage, StoreDamagedError
from dledger_node.slices import PER_TURN

QUEUE = QueueId("t", 0)
COUNT = 5 * PER_TURN
CONFIG = TopicConfig(topic_name="t", read_queue_nums=1, write_queue_nums=1, perm=6)


class Holding:
    """A member of whom one client has asked for the next message of an empty queue, many times."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self.state = BrokerState()
        self.error: Exception = UnreadableError("the log cannot be read")
        changes.make(self.state.tables, TopicSet(config=CONFIG), 0, 1)
        owner: Any = SimpleNamespace(state=self.state, is_proven=True, created_index=lambda _: 0)
        feed: Any = SimpleNamespace(has_all=True, built_index=5, rebuilds=0)
        self.feed = feed
        clients: Any = SimpleNamespace(is_broadcasting=lambda *_: False)
        reader: Any = SimpleNamespace(kept=SimpleNamespace(min_offset=self.refuse))
        member, self.channel = ProvenMember(), AnswerKeeper()
        self.pulls = Pulls(owner, clients, feed, reader, threads, member, Proofs(member), print)
        for opaque in range(COUNT):
            self.ask(opaque)
        assert self.pulls.held.count == COUNT

    def ask(self, opaque: int) -> None:
        """Ask for the next message."""
        door: Any = SimpleNamespace(counters=BrokerCounters())
        held = {"sysFlag": "6", "suspendTimeoutMillis": "20000"}
        command = RemotingCommand(
            code=int(RequestCode.PULL_MESSAGE), opaque=opaque, ext_fields=pull_ext("t", 0) | held
        )
        channel: Any = self.channel
        self.pulls.pull(Call(channel, command, door, asyncio.get_running_loop().time()))

    def refuse(self, *_: object, **__: object) -> int:
        """The log cannot be read, so that a pull that is served gets an answer at once."""
        raise self.error

    async def answers(self) -> list[int]:
        """Wait until each pull is answered, and return the codes."""
        async with asyncio.timeout(10):
            while len(self.channel.answers) < COUNT:  # noqa: ASYNC110 - threads read
                await asyncio.sleep(0.001)
        assert {answer.opaque for answer in self.channel.answers} == set(range(COUNT))
        return [answer.code for answer in self.channel.answers]


@pytest.fixture
async def holding() -> AsyncIterator[Holding]:
    with ThreadPoolExecutor(1) as threads:
        yield Holding(threads)


async def test_pulls_that_wait_for_one_queue_are_served_over_many_turns(holding: Holding) -> None:
    """One turn once served all of them: 20,000 may wait."""
    holding.state.tables.topics.by_name["t"].next_offsets[0] = 1
    left = [COUNT]
    for _ in range(2):  # the queue grows again before all have their turn
        holding.pulls.built([QUEUE])
        left.append(holding.pulls.held.count)
    while left[-1]:
        await asyncio.sleep(0)
        left.append(holding.pulls.held.count)

    assert max(before - after for before, after in itertools.pairwise(left)) == PER_TURN
    assert await holding.answers() == [ResponseCode.SYSTEM_ERROR] * COUNT


async def test_pulls_are_served_if_a_snapshot_has_messages_that_this_member_never_had(
    holding: Holding,
) -> None:
    """No unit of a queue tells of them, so the pulls waited until their time was up."""
    holding.feed.has_all = False
    holding.state.tables = holding.state.tables.copy()
    holding.state.tables.topics.by_name["t"].next_offsets[0] = 1
    holding.pulls.built([])
    await asyncio.sleep(0)
    assert holding.pulls.held.count == COUNT, "a queue that is to be built may get them yet"

    holding.feed.has_all = True
    holding.pulls.built([])

    assert await holding.answers() == [ResponseCode.SYSTEM_ERROR] * COUNT


@pytest.mark.parametrize(
    "error",
    [
        QueueFilesError("a file of a queue cannot be read"),
        StoreDamagedError("a segment cannot be read", Damage.UNREADABLE),
        IndexError("the first entry was removed meanwhile"),
        OSError("the disk is gone"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_pull_is_answered_in_words_whatever_cannot_be_read(
    holding: Holding, error: Exception
) -> None:
    """Errors of files ended in the log of asyncio, and the client waited until its time-out."""
    holding.error = error
    holding.state.tables.topics.by_name["t"].next_offsets[0] = 1
    while holding.pulls.held.count:
        holding.pulls.built([QUEUE])
        await asyncio.sleep(0)

    assert await holding.answers() == [ResponseCode.SYSTEM_ERROR] * COUNT
    assert {answer.remark for answer in holding.channel.answers} == {str(error)}


async def test_pulls_whose_time_ends_at_once_are_answered_a_part_at_a_time(
    holding: Holding,
) -> None:
    held = holding.pulls.held
    for pull in list(held):
        held.release(pull)
        pull.deadline_s = 0.0
        assert held.add(pull)
    left = [COUNT]
    holding.pulls.expire()
    holding.pulls.expire()  # a tick that comes before all are answered adds nothing
    left.append(holding.pulls.held.count)
    while left[-1]:
        await asyncio.sleep(0)
        left.append(holding.pulls.held.count)

    assert [before - after for before, after in itertools.pairwise(left)] == [PER_TURN] * 5
    assert await holding.answers() == [ResponseCode.PULL_NOT_FOUND] * COUNT


async def test_a_pull_that_is_to_be_served_is_answered_once_if_the_member_closes(
    holding: Holding,
) -> None:
    holding.state.tables.topics.by_name["t"].next_offsets[0] = 1
    holding.pulls.built([QUEUE])

    await holding.pulls.close()

    codes = await holding.answers()
    assert set(codes) == {ResponseCode.SYSTEM_ERROR, ResponseCode.PULL_RETRY_IMMEDIATELY}
    assert not holding.pulls.held.woken


async def test_a_member_that_closes_answers_its_pulls_a_part_at_a_time(holding: Holding) -> None:
    left = [COUNT]
    closing = asyncio.create_task(holding.pulls.close())
    while not closing.done():
        await asyncio.sleep(0)
        left.append(holding.pulls.held.count)

    assert max(before - after for before, after in itertools.pairwise(left)) == PER_TURN
    assert await holding.answers() == [ResponseCode.PULL_RETRY_IMMEDIATELY] * COUNT


async def test_a_pull_that_comes_while_a_member_closes_is_answered_at_once(
    holding: Holding,
) -> None:
    closing = asyncio.create_task(holding.pulls.close())
    await asyncio.sleep(0)
    assert holding.pulls.held.count, "it has not answered all of them yet"
    holding.ask(COUNT)
    await closing

    assert holding.channel.answers[PER_TURN].opaque == COUNT
    assert holding.channel.answers[PER_TURN].code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert not holding.pulls.held.count


class TimedPull:
    """A pull that counts how often somebody looks at the end of its time."""

    looks = 0

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self.queue, self.call = QUEUE, SimpleNamespace(channel=self)

    @property
    def deadline_s(self) -> float:
        TimedPull.looks += 1
        return self._deadline_s


def test_the_pulls_whose_time_is_not_over_are_not_looked_at() -> None:
    """A look at 20,000 of them took half a ms, up to twenty times a second."""
    held = HeldPulls()
    pulls: list[Any] = [TimedPull(100.0 + number / 100) for number in range(2000)]
    for pull in pulls:
        held.add(pull)
    TimedPull.looks = 0
    expired = list(held.expired(101.005))

    assert expired == pulls[:101]
    assert TimedPull.looks <= 25, "those of the quarter of a second that has just begun"


@given(
    st.lists(st.tuples(st.floats(0, 20), st.booleans()), max_size=50),
    st.lists(st.floats(0, 21), max_size=5),
)
def test_each_pull_expires_when_its_time_is_over(
    ends: list[tuple[float, bool]], looks: list[float]
) -> None:
    held = HeldPulls()
    pulls: list[Any] = [TimedPull(end_s) for end_s, _ in ends]
    for pull in pulls:
        assert held.add(pull)
    for pull, (_, is_released) in zip(pulls, ends, strict=True):
        if is_released:
            held.release(pull)
    left = [pull for pull, (_, is_released) in zip(pulls, ends, strict=True) if not is_released]
    for now_s in sorted(looks):
        expired: list[Any] = list(held.expired(now_s))
        assert set(expired) == {pull for pull in left if pull.deadline_s <= now_s}
        for pull in expired:
            held.release(pull)
            left.remove(pull)
    for pull in left:
        held.release(pull)
    assert not held.count
    assert held._by_end == held._by_channel == held._by_queue == {}
