"""A leader says where a group continues only once a quorum has confirmed that it leads."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dledger_broker.door.between_members.door_frames import Way
from dledger_broker.door.calls.call import Call
from dledger_broker.door.reading.group_offsets import GroupOffsets
from dledger_broker.door.reading.proofs import Proofs
from dledger_broker.leading.offset_commits import OffsetCommits
from dledger_broker.metrics import BrokerCounters
from dledger_broker.state import changes
from dledger_broker_client.answer_keeper import AnswerKeeper
from dledger_broker_client.client import number
from dledger_broker_client.proposing_leaders import ProposingLeader, message_draft
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.state_records import TopicSet
from dledger_formats.rocketmq.topics import TopicConfig

CONFIG = TopicConfig(topic_name="t", read_queue_nums=1, write_queue_nums=1, perm=6)
KEY = "g", "t", 0


class Door:
    """The way to the leader, which keeps what the leader could not serve."""

    def __init__(self) -> None:
        self.counters = BrokerCounters()
        self.turned_back: list[Way] = []

    def turned(self, _: Call, way: Way) -> None:
        self.turned_back.append(way)

    def ended(self, _: Call) -> None:
        """Do nothing: no request has waited."""


class Queried:
    """A leader that has committed offset 1, and is asked for it."""

    def __init__(self) -> None:
        leader = ProposingLeader()
        changes.make(leader.state.tables, TopicSet(config=CONFIG), 0, 1)
        for _ in range(3):
            leader.propose(message_draft(("t", 0)))
        leader.write()
        self.readable_index = self.applied_index = 5
        self.asked: list[Callable[[bool], object]] = []
        self.door, self.channel, queues = Door(), AnswerKeeper(), None
        self.commits = OffsetCommits(leader.owner, leader.changes)
        self.commits.commit(KEY, 1)
        proofs = Proofs(self)
        self._offsets = GroupOffsets(self.commits, queues, proofs)  # type: ignore[arg-type]

    def prove(self, done: Callable[[bool], object]) -> None:
        """Let the test answer whether this member leads."""
        self.asked.append(done)

    async def query(self, topic: str = "t") -> None:
        """Ask where the group continues."""
        ext = {
            "consumerGroup": "g", "topic": topic, "queueId": "0", "setZeroIfNotFound": "false",
        }  # fmt: skip
        request = RemotingCommand(
            code=int(RequestCode.QUERY_CONSUMER_OFFSET), opaque=1, ext_fields=ext
        )
        channel: Any = self.channel
        call = Call(channel, request, self.door, asyncio.get_running_loop().time())
        self._offsets.query(call)
        await turn()


async def turn() -> None:
    """Let the event loop do what was asked of it."""
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("topic", "code"), [("t", ResponseCode.SUCCESS), ("other", ResponseCode.QUERY_NOT_FOUND)]
)
async def test_an_offset_is_named_once_a_quorum_confirms_the_leader(
    topic: str, code: ResponseCode
) -> None:
    asked = Queried()
    await asked.query(topic)
    assert asked.channel.answers == []

    asked.asked[0](True)
    await turn()

    assert [answer.code for answer in asked.channel.answers] == [code]
    assert asked.channel.reads_waiting == 0


async def test_the_offset_is_the_one_after_the_proof() -> None:
    """The proof covers what was acknowledged before the query; what came later may count, too."""
    asked = Queried()
    await asked.query()
    asked.commits.commit(KEY, 2)
    asked.asked[0](True)
    await turn()

    [answer] = asked.channel.answers
    assert number(answer, "offset") == 2


async def test_a_query_goes_to_the_next_leader_if_no_quorum_confirms_this_one() -> None:
    asked = Queried()
    await asked.query()
    asked.asked[0](False)
    await turn()

    assert asked.channel.answers == []
    assert asked.door.turned_back == [Way.NOT_STORED]
    assert asked.channel.reads_waiting == 0


async def test_queries_of_one_turn_share_a_proof() -> None:
    asked = Queried()
    await asyncio.gather(*[asked.query() for _ in range(50)])
    assert len(asked.asked) == 1

    asked.asked[0](True)
    await turn()
    assert len(asked.channel.answers) == 50
