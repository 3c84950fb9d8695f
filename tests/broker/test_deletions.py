"""What a leader remembers of topics and groups that are being deleted."""

import pytest

from dledger_broker.leading.offset_commits import OffsetCommits
from dledger_broker.leading.record_draft import STATE_PLACE, Place, RecordDraft
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.state import changes
from dledger_broker_client.proposing_leaders import ProposingLeader, message_draft
from dledger_formats.rocketmq.state_records import GroupSet, TopicDeleted, TopicSet
from dledger_formats.rocketmq.subscription_groups import SubscriptionGroup
from dledger_formats.rocketmq.topics import TopicConfig
from dledger_node.services.drafts import Outcome

CONFIG = TopicConfig(topic_name="t", read_queue_nums=2, write_queue_nums=2, perm=6)
DELETED = TopicDeleted(topic="t")


class Leader(ProposingLeader):
    """A leader with the topic `t`."""

    def __init__(self) -> None:
        super().__init__()
        changes.make(self.state.tables, TopicSet(config=CONFIG), 0, 1)

    def delete(self) -> RecordDraft:
        """Propose the deletion of the topic; return the draft."""
        self.owner.topics.begin_deleting("t")
        self.changes.propose([self.owner.change(DELETED)], lambda _: None, DELETED)
        return self.proposed[-1]


def send(place: Place = ("t", 0), outcomes: list[Outcome] | None = None) -> RecordDraft:
    return message_draft(place, outcomes)


@pytest.fixture
def leader() -> Leader:
    """Return a leader with the topic `t`."""
    return Leader()


def test_nothing_is_proposed_for_a_topic_that_is_being_deleted(leader: Leader) -> None:
    leader.delete()
    outcomes: list[Outcome] = []

    leader.owner.propose(send(outcomes=outcomes))

    assert outcomes == [Outcome.REFUSED]
    assert len(leader.proposed) == 1
    with pytest.raises(RefusedError, match="is being deleted"):
        leader.owner.topic("t")


def test_a_refused_deletion_leaves_the_topic_as_it_was(leader: Leader) -> None:
    leader.delete()

    leader.owner.topics.deletions.refused("t")

    assert leader.owner.topic("t") == CONFIG


def test_a_topic_is_free_again_once_its_deletion_is_applied(leader: Leader) -> None:
    leader.stamp([leader.delete()], 5000)
    record = leader.state.tables
    record.last_physical_offset = 5047
    with pytest.raises(RefusedError):
        leader.owner.topic("t")

    record.last_physical_offset = 5048

    assert leader.owner.topic("t") == CONFIG


def test_a_message_that_is_stamped_after_a_deletion_begins_a_new_queue(leader: Leader) -> None:
    """With an offset of the old queue no member could apply the log any more."""
    assert leader.stamp([send(), send(), send(("u", 0))], 0) == [0, 1, 0]

    offsets = leader.stamp([leader.delete(), send(), send(("u", 0))], 9000)

    assert offsets == [0, 0, 1]


def test_a_message_that_is_stamped_before_a_deletion_goes_to_the_old_queue(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was proposed first, and this leader has written nothing to the queue yet."""
    monkeypatch.setattr(leader.state, "next_offset", lambda topic, _: 7 if topic == "t" else 0)

    offsets = leader.stamp([send(), leader.delete(), send()], 0)

    assert offsets == [7, 0, 0]


async def test_offsets_of_a_deleted_topic_are_neither_written_nor_confirmed(
    leader: Leader,
) -> None:
    commits = OffsetCommits(leader.owner, leader.changes)
    leader.stamp([send(STATE_PLACE)], 0)
    group = GroupSet(config=SubscriptionGroup(group_name="g"))
    changes.make(leader.state.tables, group, 1, 1)
    changes.make(leader.state.tables, TopicSet(config=_other("u")), 2, 1)
    outcomes: dict[str, Outcome] = {}
    for topic in ("t", "u"):
        key = "g", topic, 0
        commits.commit(key, 0, lambda outcome, topic=topic: outcomes.update({topic: outcome}))

    commits.drop(lambda _, topic: topic == "t")

    assert outcomes == {"t": Outcome.REFUSED}
    assert commits.newest("g", "t", 0) is None
    assert commits.newest("g", "u", 0) == 0
    commits.close()


def _other(name: str) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1, perm=6)
