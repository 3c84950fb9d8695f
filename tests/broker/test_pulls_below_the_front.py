"""Pulls of messages that a member no longer has: its leader may have them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from dledger_broker.door.calls.call import Call
from dledger_broker.door.reading.proofs import Proofs
from dledger_broker.door.reading.pulls import Pulls
from dledger_broker.metrics import BrokerCounters
from dledger_broker.state import changes
from dledger_broker.state.broker_state import BrokerState
from dledger_broker_client.answer_keeper import AnswerKeeper
from dledger_broker_client.client import number, pull_ext
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.consumer_groups import Subscription
from dledger_formats.rocketmq.state_records import TopicSet
from dledger_formats.rocketmq.topics import TopicConfig

END, FRONT = 5, 3
BY_HEARTBEAT = "2"
"""The flag of a pull that may be held, and means the subscription of the heartbeat."""
CONFIG = TopicConfig(topic_name="t", read_queue_nums=1, write_queue_nums=1, perm=6)


class Member:
    """A follower without a leader, of whom nobody can confirm anything."""

    leader_id: str | None = None
    readable_index = applied_index = 5

    def prove(self, done: Callable[[bool], object]) -> None:
        done(False)


class Follower:
    """A member that has the messages of a queue from FRONT to END."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        state = BrokerState()
        changes.make(state.tables, TopicSet(config=CONFIG), 0, 1)
        state.tables.topics.by_name["t"].next_offsets[0] = END
        owner: Any = SimpleNamespace(state=state, is_proven=False, created_index=lambda _: 0)
        feed: Any = SimpleNamespace(has_all=True, built_index=5, rebuilds=0)
        self.tags = "red"
        clients: Any = SimpleNamespace(
            is_broadcasting=lambda *_: False, subscription=self.subscribed,
            own_subscription=self.subscribed,
        )  # fmt: skip
        kept = SimpleNamespace(
            min_offset=lambda *_, **__: FRONT, kept_offset=lambda *_, **__: FRONT
        )
        reader: Any = SimpleNamespace(kept=kept)
        self.member, self.channel = Member(), AnswerKeeper()
        self.passed_on: list[Call] = []
        self.went_on = asyncio.Event()
        self.channel.go_on = self.went_on.set  # type: ignore[method-assign]
        self.pulls = Pulls(
            owner, clients, feed, reader, threads, self.member,
            Proofs(self.member),  # type: ignore[arg-type]
            self.passed_on.append,
        )  # fmt: skip

    def subscribed(self, *_: object) -> Subscription:
        """Return what the last heartbeat of the client said."""
        return Subscription(topic="t", sub_string=self.tags, sub_version=1)

    async def ask(self, offset: int, *, age_s: float = 0.0, sys_flag: str = "6") -> Call:
        """Pull, and wait until the member has looked at it."""
        door: Any = SimpleNamespace(counters=BrokerCounters())
        held = {"sysFlag": sys_flag, "suspendTimeoutMillis": "20000"}
        command = RemotingCommand(
            code=int(RequestCode.PULL_MESSAGE), opaque=1, ext_fields=pull_ext("t", offset) | held
        )
        channel: Any = self.channel
        call = Call(channel, command, door, asyncio.get_running_loop().time() - age_s)
        self.pulls.pull(call)
        await self.looked()
        return call

    async def looked(self) -> None:
        """Wait until the member has looked at a pull."""
        async with asyncio.timeout(10):
            await self.went_on.wait()
        self.went_on.clear()


@pytest.fixture
async def follower() -> AsyncIterator[Follower]:
    with ThreadPoolExecutor(1) as threads:
        yield Follower(threads)


@pytest.mark.parametrize("offset", [FRONT - 1, END + 1], ids=["below the front", "beyond the end"])
async def test_a_pull_that_needs_a_leader_is_served_again_when_there_is_one(
    follower: Follower, offset: int
) -> None:
    """It waited for another message of its queue, or for 20 s."""
    await follower.ask(offset)
    follower.pulls.leader_changed()
    assert follower.pulls.held.count == 1, "there is no leader yet"

    follower.member.leader_id = "n1"
    follower.pulls.leader_changed()
    assert not follower.pulls.held.count
    await follower.looked()

    assert bool(follower.passed_on) == (offset < FRONT)
    assert bool(follower.pulls.held.count) == (offset > END), "it cannot be proved yet"


@pytest.mark.parametrize("tags", ["red", "red || blue"], ids=["same tags", "more tags"])
async def test_a_pull_that_waits_for_a_leader_goes_to_it_unless_its_client_wants_other_tags(
    follower: Follower, tags: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader skipped the messages of the new tags, and nobody asked for them again."""
    monkeypatch.setattr(Call, "connection", follower.channel)
    await follower.ask(FRONT - 1, sys_flag=BY_HEARTBEAT)
    follower.tags = tags
    follower.member.leader_id = "n1"
    follower.pulls.leader_changed()
    await follower.looked()

    assert bool(follower.passed_on) == (tags == "red")
    told = [(each.code, number(each, "nextBeginOffset")) for each in follower.channel.answers]
    assert told == ([] if tags == "red" else [(ResponseCode.PULL_RETRY_IMMEDIATELY, FRONT - 1)])


async def test_a_pull_that_waits_for_a_message_is_not_served_for_a_leader(
    follower: Follower,
) -> None:
    follower.went_on.set()
    await follower.ask(END)
    follower.member.leader_id = "n1"
    follower.pulls.leader_changed()

    assert follower.pulls.held.count == 1
    assert not follower.pulls.held.woken


async def test_the_time_of_a_pull_at_the_leader_counts_from_when_it_is_passed_on(
    follower: Follower,
) -> None:
    """One that its member had held before was answered with 14 within 50 ms."""
    follower.member.leader_id = "n1"
    asked = await follower.ask(FRONT - 1, age_s=4.0)

    [passed_on] = follower.passed_on
    assert passed_on.arrived_s >= asked.arrived_s + 4.0
