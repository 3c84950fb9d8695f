"""More offsets of consumer groups at once than one turn of the event loop may write."""

from collections.abc import Sequence

import pytest

from dledger_broker.leading import offset_commits
from dledger_broker.leading.offset_commits import Key, OffsetCommits
from dledger_broker.leading.record_draft import RecordDraft
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.state import changes, groups
from dledger_broker_client.proposing_leaders import ProposingLeader
from dledger_formats.rocketmq import message_record, state_records
from dledger_formats.rocketmq.state_records import AnyStateRecord, GroupSet, Offsets, TopicSet
from dledger_formats.rocketmq.subscription_groups import SubscriptionGroup
from dledger_formats.rocketmq.topics import TopicConfig
from dledger_node.services.drafts import Outcome

QUEUES = 10


class Commits:
    """Commits of offset 0 at a leader, and how they ended."""

    def __init__(self) -> None:
        self.leader = leader = ProposingLeader()
        config = TopicConfig(
            topic_name="t", read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=6
        )
        changes.make(leader.state.tables, TopicSet(config=config), 0, 1)
        group = GroupSet(config=SubscriptionGroup(group_name="g"))
        changes.make(leader.state.tables, group, 0, 1)
        self.commits = OffsetCommits(leader.owner, leader.changes)
        self.ended: list[tuple[Key, Outcome | RefusedError]] = []

    def commit(self, keys: Sequence[Key], *, told: bool = False) -> None:
        """Commit an offset of each key; with an answer if `told`."""
        for key in keys:
            done = (lambda ended, key=key: self.ended.append((key, ended))) if told else None
            self.commits.commit(key, 0, done)

    async def written(self) -> list[Key]:
        """Write the next draft that is proposed; return the offsets that it has."""
        *_, offsets = changes_of(await self.leader.next_draft())
        assert isinstance(offsets, Offsets)
        self.leader.write()
        return [
            (each.group, each.topic, queue_id)
            for each in offsets.groups
            for queue_id, _ in each.offsets
        ]


def changes_of(draft: RecordDraft) -> list[AnyStateRecord]:
    records = [message_record.decode(bytes(body), check_crc=False) for body in draft.bodies]
    return [state_records.decode(record.body) for record in records]


def queues(*numbers: int) -> list[Key]:
    return [("g", "t", number) for number in numbers]


def new_groups(*names: str) -> list[Key]:
    return [(name, "t", 0) for name in names]


@pytest.fixture
async def commits(monkeypatch: pytest.MonkeyPatch) -> Commits:
    """Return commits of which one record takes four offsets, and of two new groups."""
    monkeypatch.setattr(offset_commits, "RECORD_OFFSETS_MAX", 4)
    monkeypatch.setattr(offset_commits, "NEW_GROUPS_MAX", 2)
    return Commits()


async def test_more_offsets_than_a_record_takes_are_written_one_record_after_the_other(
    commits: Commits,
) -> None:
    commits.commit(queues(*range(9)))

    assert await commits.written() == queues(0, 1, 2, 3)
    assert await commits.written() == queues(4, 5, 6, 7)
    assert await commits.written() == queues(8)
    assert not commits.leader.proposed


async def test_the_rest_of_the_offsets_does_not_wait_for_a_tenth_of_a_second(
    commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits.commit(queues(*range(5)))
    await commits.leader.next_draft()
    monkeypatch.setattr(offset_commits, "COLLECT_S", 1e6)

    assert await commits.written() == queues(0, 1, 2, 3)
    assert await commits.written() == queues(4)


async def test_each_commit_is_answered_when_its_own_record_is_applied(commits: Commits) -> None:
    commits.commit(queues(*range(6)), told=True)

    await commits.written()
    assert commits.ended == [(key, Outcome.COMMITTED) for key in queues(0, 1, 2, 3)]
    assert not commits.commits.is_idle
    await commits.written()
    assert commits.ended == [(key, Outcome.COMMITTED) for key in queues(0, 1, 2, 3, 4, 5)]
    assert commits.commits.is_idle


async def test_a_group_continues_at_an_offset_that_waits_for_the_next_record(
    commits: Commits,
) -> None:
    commits.commit(queues(*range(6)))
    await commits.leader.next_draft()

    assert [commits.commits.newest(*key) for key in queues(0, 5, 6)] == [0, 0, None]


async def test_an_offset_of_a_deleted_topic_that_waits_for_the_next_record_is_dropped(
    commits: Commits,
) -> None:
    commits.commit(queues(*range(6)), told=True)
    await commits.leader.next_draft()

    commits.commits.drop(lambda _, topic: topic == "t")

    assert commits.ended == [(key, Outcome.REFUSED) for key in queues(4, 5)]
    assert await commits.written() == queues(0, 1, 2, 3)


async def test_a_leader_that_is_deposed_forgets_what_waits_for_the_next_record(
    commits: Commits,
) -> None:
    commits.commit(queues(*range(6)), told=True)
    await commits.leader.next_draft()

    commits.leader.member.leads = False
    assert commits.commits.newest("g", "t", 5) is None
    assert commits.ended == [(key, Outcome.REFUSED) for key in queues(4, 5)]


async def test_more_new_groups_than_a_record_takes_are_created_one_record_after_the_other(
    commits: Commits,
) -> None:
    commits.commit([*new_groups("a", "b"), *queues(1), *new_groups("c")])

    created = changes_of(await commits.leader.next_draft())[:-1]
    assert len(created) == 2
    assert await commits.written() == [*new_groups("a", "b"), *queues(1)]
    assert await commits.written() == new_groups("c")
    assert list(commits.leader.state.tables.groups.configs) == ["g", "a", "b", "c"]


async def test_new_groups_for_which_there_is_no_room_count_as_well(
    commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To refuse one takes as long as to create one."""
    commits.commit(new_groups("a", "b", "c"), told=True)
    monkeypatch.setattr(groups, "GROUPS_MAX", 1)

    assert await commits.written() == new_groups("a", "b")
    assert await commits.written() == new_groups("c")
    assert all(isinstance(ended, RefusedError) for _, ended in commits.ended)
