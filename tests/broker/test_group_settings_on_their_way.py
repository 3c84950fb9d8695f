"""Settings of a consumer group that an administrator has sent, and that are not applied yet.

A client of the group may come meanwhile. Its request creates the group if nobody else does, and
must not replace these settings by the defaults.
"""

import asyncio
from typing import cast

import pytest

from dledger_broker.door.administration.changes import Administration
from dledger_broker.door.calls.call import Call, Door
from dledger_broker.door.consumer_groups.group_requests import GroupRequests
from dledger_broker.leading.client_leases import ClientLeases
from dledger_broker.leading.offset_commits import OffsetCommits
from dledger_broker.metrics import BrokerCounters
from dledger_broker.state import changes
from dledger_broker_client.answer_keeper import AnswerKeeper
from dledger_broker_client.client import consumer
from dledger_broker_client.proposing_leaders import ProposingLeader
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import RequestCode
from dledger_formats.rocketmq.consumer_groups import Heartbeat
from dledger_formats.rocketmq.state_records import TopicSet
from dledger_formats.rocketmq.subscription_groups import SubscriptionGroup
from dledger_formats.rocketmq.topics import TopicConfig
from dledger_node.services.drafts import Outcome

Code = RequestCode
SETTINGS = SubscriptionGroup(group_name="g", retry_queue_nums=4, retry_max_times=3)


class Leader(ProposingLeader):
    """A leader with the topic `t`, and the parts that set and create groups."""

    def __init__(self) -> None:
        super().__init__()
        config = TopicConfig(topic_name="t", read_queue_nums=1, write_queue_nums=1, perm=6)
        changes.make(self.state.tables, TopicSet(config=config), 0, 1)
        now_s = asyncio.get_running_loop().time
        self.commits = OffsetCommits(self.owner, self.changes)
        leases = ClientLeases(self.owner, self.changes, now_s, lambda: ())
        self.groups = GroupRequests(self.owner, self.commits, self.changes, leases)
        self.administration = Administration(self.owner, self.commits, self.changes)
        self.channel = AnswerKeeper()

    def call(self, code: RequestCode, ext: dict[str, str] | None = None, body: bytes = b"") -> Call:
        """Return a request of a client."""
        command = RemotingCommand(code=code, opaque=1, ext_fields=ext, body=body)
        door = cast("Door", _Door())
        return Call(self.channel, command, door, 0.0)  # type: ignore[arg-type]

    def set_group(self, settings: SubscriptionGroup) -> None:
        """Take settings of an administrator."""
        code = Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        self.administration.set_group(self.call(code, body=settings.to_json()))

    def beat(self) -> None:
        """Take the first heartbeat of a client of the group."""
        heartbeat = Heartbeat(client_id="c1", consumer_data_set=[consumer("g", "t")])
        self.groups.join(self.call(Code.HEART_BEAT, body=heartbeat.to_json()))

    @property
    def found(self) -> SubscriptionGroup:
        """The settings of the group in the state."""
        return self.state.tables.groups.configs["g"]


class _Door:
    counters = BrokerCounters()

    def turned(self, call: Call, way: object) -> None:
        """Do nothing: the request comes again."""


@pytest.fixture
async def leader() -> Leader:
    """Return a leader without groups."""
    return Leader()


async def test_a_client_that_joins_meanwhile_keeps_them(leader: Leader) -> None:
    leader.set_group(SETTINGS)
    leader.beat()
    leader.write()

    assert leader.found == SETTINGS
    assert leader.state.client_ids("g") == ["c1"]
    assert leader.state.tables.topics.has_queue("%RETRY%g", 3), "its retry topic follows them, too"


async def test_an_offset_that_is_committed_meanwhile_keeps_them(leader: Leader) -> None:
    leader.set_group(SETTINGS)
    leader.commits.commit(("g", "t", 0), 0, lambda _: None)
    await asyncio.sleep(0.01)
    leader.write()

    assert leader.found == SETTINGS
    assert leader.state.consumer_offset("g", "t", 0) == 0


async def test_a_client_keeps_those_that_may_still_be_written(leader: Leader) -> None:
    leader.set_group(SETTINGS)
    [draft] = leader.proposed
    leader.proposed.clear()
    leader.owner.ended([draft], Outcome.UNKNOWN)
    leader.proposed.append(draft)
    leader.beat()
    leader.write()

    assert leader.found == SETTINGS


async def test_refused_settings_are_forgotten(leader: Leader) -> None:
    leader.set_group(SETTINGS)
    [draft] = leader.proposed
    leader.proposed.clear()
    leader.owner.ended([draft], Outcome.REFUSED)
    leader.beat()
    leader.write()

    assert leader.found == SubscriptionGroup(group_name="g")


async def test_a_deleted_group_begins_with_the_defaults_again(leader: Leader) -> None:
    leader.set_group(SETTINGS)
    [draft] = leader.proposed
    leader.owner.ended([draft], Outcome.UNKNOWN)
    leader.write()
    ext = {"groupName": "g", "cleanOffset": "true"}
    leader.administration.delete_group(leader.call(Code.DELETE_SUBSCRIPTIONGROUP, ext))
    leader.write()
    leader.beat()
    leader.write()

    assert leader.found == SubscriptionGroup(group_name="g")
