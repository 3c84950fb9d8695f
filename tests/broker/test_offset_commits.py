"""Offsets of consumer groups on their way into the log."""

import pytest

from dledger_broker.leading.offset_commits import Done, OffsetCommits
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.state import changes, consumer_offsets, groups
from dledger_broker_client.proposing_leaders import ProposingLeader, message_draft
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.state_records import TopicDeleted, TopicSet
from dledger_formats.rocketmq.topics import TopicConfig
from dledger_node.services.drafts import Outcome

DELETED = TopicDeleted(topic="t")


def create(leader: ProposingLeader, queues: int = 1) -> None:
    config = TopicConfig(topic_name="t", read_queue_nums=queues, write_queue_nums=queues, perm=6)
    changes.make(leader.state.tables, TopicSet(config=config), 0, 1)


def send(leader: ProposingLeader, count: int) -> None:
    for _ in range(count):
        leader.propose(message_draft(("t", 0)))


@pytest.fixture
def leader() -> ProposingLeader:
    """Return a leader with the topic `t` of one queue."""
    leader = ProposingLeader()
    create(leader)
    return leader


@pytest.fixture
async def commits(leader: ProposingLeader) -> OffsetCommits:
    """Return the commits of the leader."""
    return OffsetCommits(leader.owner, leader.changes)


async def test_an_offset_beyond_the_end_of_its_queue_is_refused(
    leader: ProposingLeader, commits: OffsetCommits
) -> None:
    send(leader, 3)
    leader.write()

    commits.commit(("g", "t", 0), 3)
    with pytest.raises(RefusedError) as refused:
        commits.commit(("g", "t", 0), 4)

    assert refused.value.code == ResponseCode.INVALID_PARAMETER
    assert refused.value.remark == "the offset 4 is beyond 3, the end of queue 0 of 't'"
    assert commits.newest("g", "t", 0) == 3
    commits.close()


async def test_an_offset_of_a_deleted_topic_is_no_offset_of_a_new_one_of_its_name(
    leader: ProposingLeader, commits: OffsetCommits
) -> None:
    """A client that goes on would else skip the messages up to there when it starts again."""
    send(leader, 10)
    leader.write()
    leader.owner.topics.begin_deleting("t")
    leader.changes.propose([leader.owner.change(DELETED)], lambda _: None, DELETED)
    leader.write()
    create(leader)
    send(leader, 3)
    leader.write()

    with pytest.raises(RefusedError, match="is beyond 3"):
        commits.commit(("g", "t", 0), 10)

    assert commits.newest("g", "t", 0) is None


async def test_the_offset_of_a_message_counts_once_its_entry_is_written(
    leader: ProposingLeader, commits: OffsetCommits
) -> None:
    """A member may have applied it, and handed it out, before the leader has."""
    leader.stamp([message_draft(("t", 0))], 0)

    commits.commit(("g", "t", 0), 1)

    assert leader.state.next_offset("t", 0) == 0
    assert commits.newest("g", "t", 0) == 1
    commits.close()


class Ends:
    """How commits ended, by group."""

    def __init__(self) -> None:
        self.by_group: dict[str, Outcome | str] = {}

    def of(self, group: str) -> Done:
        """Return what is to be called when the commit of a group has ended."""

        def done(ended: Outcome | RefusedError) -> None:
            remark = ended.remark if isinstance(ended, RefusedError) else ended
            self.by_group[group] = remark

        return done


async def test_commits_for_which_the_state_has_no_room_any_more_are_refused(
    leader: ProposingLeader, commits: OffsetCommits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There was room when each of them came."""
    monkeypatch.setattr(consumer_offsets, "OFFSETS_MAX", 2)
    ends = Ends()
    for group in ("a", "b", "c"):
        commits.commit((group, "t", 0), 0, ends.of(group))
    await leader.next_draft()
    leader.write()

    full = "the broker has 2 consumer offsets; 2 is the limit"
    assert ends.by_group == {"a": Outcome.COMMITTED, "b": Outcome.COMMITTED, "c": full}
    assert [leader.state.consumer_offset(group, "t", 0) for group in "abc"] == [0, 0, None]


async def test_a_commit_of_a_group_for_which_there_is_no_room_any_more_is_refused(
    leader: ProposingLeader, commits: OffsetCommits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "GROUPS_MAX", 1)
    ends = Ends()
    for group in ("a", "b"):
        commits.commit((group, "t", 0), 0, ends.of(group))
    await leader.next_draft()
    leader.write()

    assert ends.by_group["a"] is Outcome.COMMITTED
    assert "which is the limit" in str(ends.by_group["b"])


async def test_a_commit_that_a_later_one_replaced_in_the_same_record_is_acknowledged(
    leader: ProposingLeader, commits: OffsetCommits
) -> None:
    send(leader, 2)
    leader.write()
    ends = Ends()
    commits.commit(("g", "t", 0), 1, ends.of("first"))
    commits.commit(("g", "t", 0), 2, ends.of("second"))
    await leader.next_draft()
    leader.write()

    assert ends.by_group == {"first": Outcome.COMMITTED, "second": Outcome.COMMITTED}


async def test_a_commit_whose_offset_is_gone_once_it_is_applied_is_refused(
    leader: ProposingLeader, commits: OffsetCommits
) -> None:
    """A deletion of the topic was proposed before the record of the offset was."""
    ends = Ends()
    commits.commit(("g", "t", 0), 0, ends.of("g"))
    await leader.next_draft()
    changes.make(leader.state.tables, DELETED, 1, 1)
    leader.write()

    assert ends.by_group == {"g": "there is no queue 0 of 't'"}
