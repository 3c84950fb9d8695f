"""Heartbeats with a group that a client cannot join now: it joins its other groups."""

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from dledger_broker.door.calls.call import Call
from dledger_broker.door.calls.failures import answered
from dledger_broker.door.consumer_groups import group_requests
from dledger_broker.door.consumer_groups.group_requests import GroupRequests
from dledger_broker.leading.client_leases import ClientLeases
from dledger_broker.leading.offset_commits import OffsetCommits
from dledger_broker.metrics import BrokerCounters
from dledger_broker.state import topics
from dledger_broker_client.answer_keeper import AnswerKeeper
from dledger_broker_client.client import consumer
from dledger_broker_client.proposing_leaders import ProposingLeader
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.consumer_groups import Heartbeat

GROUPS = ("a", "b", "c")


class Leader(ProposingLeader):
    """A leader, and the part that lets clients join."""

    def __init__(self) -> None:
        super().__init__()
        now_s = asyncio.get_running_loop().time
        self.leases = ClientLeases(self.owner, self.changes, now_s, lambda: ())
        commits = OffsetCommits(self.owner, self.changes)
        self.groups = GroupRequests(self.owner, commits, self.changes, self.leases)

    async def beat(self, *groups: str, topic: str = "t") -> RemotingCommand:
        """Take a heartbeat of a client, write what it proposes, and return its answer."""
        channel: Any = AnswerKeeper()
        door: Any = SimpleNamespace(counters=BrokerCounters())
        consumers = [consumer(group, topic) for group in groups]
        body = Heartbeat(client_id="c1", consumer_data_set=consumers).to_json()
        command = RemotingCommand(code=int(RequestCode.HEART_BEAT), opaque=1, body=body)
        call = Call(channel, command, door, 0.0)
        answered(call, partial(self.groups.join, call))
        async with asyncio.timeout(10):
            while not channel.answers:
                self.write()
                await asyncio.sleep(0)
        [answer] = channel.answers
        return answer

    def joined(self) -> list[str]:
        """Return the groups that the client has joined."""
        return [group for group in GROUPS if self.state.client_ids(group)]


@pytest.fixture
async def leader() -> Leader:
    """Return a leader without groups."""
    return Leader()


@pytest.mark.parametrize("at_once", [1, 8])
@pytest.mark.parametrize("refused", GROUPS)
async def test_a_client_of_a_group_that_is_being_deleted_joins_the_others(
    leader: Leader, monkeypatch: pytest.MonkeyPatch, refused: str, at_once: int
) -> None:
    monkeypatch.setattr(group_requests, "GROUPS_AT_ONCE", at_once)
    leader.owner.deleted_groups.begin(refused)

    answer = await leader.beat(*GROUPS)

    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert f"the consumer group {refused} is being deleted" in (answer.remark or "")
    assert leader.joined() == [group for group in GROUPS if group != refused]


async def test_a_group_without_room_for_its_retry_topic_keeps_nobody_out_of_the_others(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leader.beat("c")
    monkeypatch.setattr(topics, "TOPICS_MAX", 0)

    answer = await leader.beat("a", "b")
    changed = await leader.beat("a", "c", topic="u")

    assert answer.code == changed.code == ResponseCode.TOPIC_NOT_EXIST
    assert leader.joined() == ["c"]
    assert leader.state.consumer("c", "c1") == consumer("c", "u")


async def test_a_refused_group_takes_no_room_for_its_topic(leader: Leader) -> None:
    leader.owner.topics.begin_deleting("%RETRY%b")

    answer = await leader.beat(*GROUPS)

    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert leader.joined() == ["a", "c"]
    leader.owner.topic("%RETRY%a")  # what is applied needs no room any more
    assert leader.owner.topics._topics == 0
