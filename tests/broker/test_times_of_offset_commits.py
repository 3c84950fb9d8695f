"""When one-way commits of offsets are written, on a clock that only the test moves."""

import asyncio
from collections.abc import Iterator

import pytest

from dledger_broker.leading.offset_commits import OffsetCommits
from dledger_broker.state import changes
from dledger_broker_client.proposing_leaders import ProposingLeader, message_draft
from dledger_formats.rocketmq.state_records import TopicSet
from dledger_formats.rocketmq.topics import TopicConfig
from dledger_node.services.drafts import WAIT_S
from dledger_sim.simulated_loop import SimulatedLoop

CONFIG = TopicConfig(topic_name="t", read_queue_nums=1, write_queue_nums=1, perm=6)
KEY = "g", "t", 0


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """An event loop that never waits."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as running:
        yield running


@pytest.fixture
def leader() -> ProposingLeader:
    """A leader of a topic with ten messages."""
    made = ProposingLeader()
    changes.make(made.state.tables, TopicSet(config=CONFIG), 0, 1)
    for _ in range(10):
        made.propose(message_draft(("t", 0)))
    made.write()
    return made


async def proposed_s(leader: ProposingLeader) -> float:
    """Return when the next record is proposed."""
    await leader.next_draft()
    return asyncio.get_running_loop().time()


def test_a_one_way_commit_is_written_a_tenth_of_a_second_after_it_came_with_those_that_followed(
    runner: asyncio.Runner, leader: ProposingLeader
) -> None:
    async def run() -> float:
        commits = OffsetCommits(leader.owner, leader.changes)
        commits.commit(KEY, 1)
        for offset in range(2, 10):
            await asyncio.sleep(0.011)
            commits.commit(KEY, offset)
        return await proposed_s(leader)

    assert runner.run(run()) == pytest.approx(0.1)
    leader.write()
    assert leader.state.consumer_offset(*KEY) == 9


def test_a_one_way_commit_waits_for_the_record_before_it_as_long_as_that_waits_for_a_quorum(
    runner: asyncio.Runner, leader: ProposingLeader
) -> None:
    async def run() -> tuple[float, int]:
        commits = OffsetCommits(leader.owner, leader.changes)
        commits.commit(KEY, 1)
        first_s = await proposed_s(leader)
        commits.commit(KEY, 2)
        await asyncio.sleep(WAIT_S)
        waiting = len(leader.proposed)
        leader.write()
        return await proposed_s(leader) - first_s, waiting

    assert runner.run(run()) == (pytest.approx(WAIT_S + 0.1), 1)


def test_a_commit_with_an_answer_is_written_at_once_with_those_that_were_collected(
    runner: asyncio.Runner, leader: ProposingLeader
) -> None:
    async def run() -> float:
        commits = OffsetCommits(leader.owner, leader.changes)
        commits.commit(("one-way", "t", 0), 3)
        commits.commit(KEY, 4, lambda _: None)
        return await proposed_s(leader)

    assert runner.run(run()) == 0.0
    leader.write()
    assert leader.state.consumer_offset(*KEY) == 4
    assert leader.state.consumer_offset("one-way", "t", 0) == 3
