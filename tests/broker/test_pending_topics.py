"""Settings of topics on their way into the log: the state has room for all of them, always.

A message whose queue the state refuses is in the log for good, and no member can go on past it.
"""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dledger_broker.leading.pending_topics import SYSTEM_QUEUES
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.state import changes, topics
from dledger_broker_client.proposing_leaders import new_owner
from dledger_broker_log.states import topic_config
from dledger_formats.rocketmq.state_records import TopicDeleted, TopicSet

QUEUES = 40
TOPICS = 8
NAMES = st.sampled_from(["a", "b", "c", "d", "e", "f"])


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "QUEUES_MAX", 100)


def test_a_second_setting_of_a_topic_leaves_the_first_its_room() -> None:
    """The log keeps the larger one: its queues stay, even if it is to have fewer."""
    owner, _ = new_owner()
    owner.create_topic(topic_config("t", 100 - SYSTEM_QUEUES - 1))
    owner.create_topic(topic_config("t", 1))

    with pytest.raises(RefusedError, match="more than 100 queues"):
        owner.create_topic(topic_config("u", 8))


def test_a_refused_setting_takes_nothing_from_the_others_of_its_topic() -> None:
    owner, _ = new_owner()
    owner.create_topic(topic_config("t", 40))
    second = owner.create_topic(topic_config("t", 30))
    owner.forget_topic(second)

    with pytest.raises(RefusedError, match="more than 100 queues"):
        owner.create_topic(topic_config("u", 41))
    owner.create_topic(topic_config("u", 40))


def test_a_refused_creation_gives_its_room_back() -> None:
    owner, _ = new_owner()
    first = owner.create_topic(topic_config("t", 80))
    owner.forget_topic(first)
    assert owner.topic("t") is None
    owner.create_topic(topic_config("u", 80))


def test_a_deletion_that_is_refused_leaves_a_setting_its_room() -> None:
    owner, _ = new_owner()
    owner.create_topic(topic_config("t", 80))
    owner.topics.begin_deleting("t")
    owner.topics.deletions.refused("t")

    with pytest.raises(RefusedError, match="more than 100 queues"):
        owner.create_topic(topic_config("u", 1))


def test_a_setting_that_is_applied_needs_no_room_of_its_own() -> None:
    owner, state = new_owner()
    change = owner.create_topic(topic_config("t", 60))
    owner.topics.stamped(change, 1000)
    changes.make(state.tables, TopicSet(config=topic_config("t", 60)), 1, 1)
    state.tables.last_physical_offset = 1000

    owner.create_topic(topic_config("u", 20))
    with pytest.raises(RefusedError):
        owner.create_topic(topic_config("v", 1))


class Leader(RuleBasedStateMachine):
    """A leader whose proposals are written, refused and applied in any order that can happen."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(topics, "QUEUES_MAX", QUEUES)
        self.patch.setattr(topics, "TOPICS_MAX", TOPICS)
        self.owner, self.state = new_owner()
        self.proposed: list[tuple[bytearray, TopicSet]] = []
        self.log: list[TopicSet | TopicDeleted] = []
        self.applied = 0

    def teardown(self) -> None:
        self.patch.undo()

    @rule(name=NAMES, queues=st.integers(1, 12))
    def propose(self, name: str, queues: int) -> None:
        setting = topic_config(name, queues)
        try:
            if self.owner.topic(name) is None or queues % 2:
                change = self.owner.create_topic(setting)
                self.proposed.append((change, TopicSet(config=setting)))
        except RefusedError:
            pass

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        """Only what is known, and nothing twice."""
        if name in self.owner.topics.deletions or self.owner.topic(name) is None:
            return
        for _ in range(len(self.proposed)):  # those of the same turn are written before
            self.write()
        self.owner.topics.begin_deleting(name)
        self.log.append(TopicDeleted(topic=name))
        self.owner.topics.deletions.stamped(name, 1000 * len(self.log))

    @rule()
    def write(self) -> None:
        if self.proposed:
            change, record = self.proposed.pop(0)
            self.log.append(record)
            self.owner.topics.stamped(change, 1000 * len(self.log))

    @rule()
    def refuse(self) -> None:
        if self.proposed:
            self.owner.forget_topic(self.proposed.pop(0)[0])

    @rule()
    def apply(self) -> None:
        if self.applied < len(self.log):
            record = self.log[self.applied]
            self.applied += 1
            if isinstance(record, TopicSet):
                assert self.state.tables.topics.refusal(record.config) is None, "there was room"
            changes.make(self.state.tables, record, self.applied, 1)
            self.state.tables.last_physical_offset = 1000 * self.applied

    @invariant()
    def counts_are_those_of_the_settings_that_are_left(self) -> None:
        pending = self.owner.topics._by_change.values()
        assert self.owner.topics._queues == sum(each.queues for each in pending)
        assert self.owner.topics._topics == sum(each.topics for each in pending)

    @invariant()
    def a_topic_is_known_if_it_exists_once_all_is_applied(self) -> None:
        coming = [*self.log[self.applied :], *(record for _, record in self.proposed)]
        for name in ("a", "b", "c", "d", "e", "f"):
            if name not in self.owner.topics.deletions:
                is_set = any(
                    isinstance(each, TopicSet) and each.config.topic_name == name for each in coming
                )
                exists = name in self.state.tables.topics.by_name or is_set
                assert (self.owner.topic(name) is not None) == exists


TestLeader = Leader.TestCase
