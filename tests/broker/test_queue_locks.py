"""Locks of queues: one client of a group holds a queue at any time, also over a failover."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.leading.queue_locks import LEASE_S, QueueLocks
from dledger_broker.leading.record_draft import STATE_PLACE, RecordDraft
from dledger_broker.leading.state_changes import StateChanges
from dledger_broker.state import changes
from dledger_broker.state.broker_state import BrokerState
from dledger_broker.state.groups import Queue
from dledger_broker_client.client import BrokerClient, consumer, lock_body
from dledger_formats.log.disk import ENTRY_HEADER_SIZE
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.state_records import AnyStateRecord, QueuesLocked, TopicSet
from dledger_formats.rocketmq.topics import TopicConfig
from dledger_node.services.drafts import Outcome
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

Code = RequestCode
Answer = ResponseCode
GROUP = "g"
QUEUE = Queue(GROUP, "t", 0)


def prepare(client: BrokerClient, topic: str) -> None:
    client.send(topic)
    client.beat("c1", consumer(GROUP, topic))
    client.wait_until_visible(topic, 1)


def test_a_queue_is_held_by_the_first_client_that_asks_until_it_gives_it_back(
    client: BrokerClient,
) -> None:
    prepare(client, "locked")

    assert client.lock("c1", GROUP, "locked", 0, 1) == [0, 1]
    assert client.lock("c2", GROUP, "locked", 0, 1, 2) == [2]
    assert client.lock("c1", GROUP, "locked", 0, 1) == [0, 1]
    assert client.unlock("c2", GROUP, "locked", 0).code == Answer.SUCCESS
    assert client.lock("c2", GROUP, "locked", 0) == []
    assert client.unlock("c1", GROUP, "locked", 0).code == Answer.SUCCESS
    assert client.lock("c2", GROUP, "locked", 0, 1) == [0]


def test_each_group_has_locks_of_its_own(client: BrokerClient) -> None:
    prepare(client, "twice-locked")
    client.beat("c2", consumer("other", "twice-locked"))

    assert client.lock("c1", GROUP, "twice-locked", 0) == [0]
    assert client.lock("c2", "other", "twice-locked", 0) == [0]


def test_many_clients_that_ask_at_once_get_each_queue_once(client: BrokerClient) -> None:
    prepare(client, "raced")

    bodies = [lock_body(f"c{n}", GROUP, "raced", range(4)) for n in range(50)]
    opaques = [client.begin(Code.LOCK_BATCH_MQ, body=body) for body in bodies]
    answers = [client.answer(opaque) for opaque in opaques]

    held = b"".join(answer.body for answer in answers).count(b'"queueId"')
    assert held == 4


@pytest.mark.parametrize(
    ("group", "topic", "client_id", "code"),
    [
        ("nobody", "sound", "c1", Answer.SUBSCRIPTION_GROUP_NOT_EXIST),
        (GROUP, "sound", "", Answer.SYSTEM_ERROR),
        (GROUP, "sound", "c" * 256, Answer.SYSTEM_ERROR),
    ],
)
def test_a_bad_request_for_locks_is_refused(
    client: BrokerClient, group: str, topic: str, client_id: str, code: ResponseCode
) -> None:
    prepare(client, "sound")

    answer = client.ask(Code.LOCK_BATCH_MQ, body=lock_body(client_id, group, topic, [3]))

    assert answer.code == code
    assert client.lock("c1", GROUP, "sound", 3) == [3]
    client.unlock("c1", GROUP, "sound", 3)


def test_queues_that_do_not_exist_cannot_be_locked(client: BrokerClient) -> None:
    prepare(client, "few")

    assert client.lock("c1", GROUP, "few", -1, 4, 1000) == []
    assert client.lock("c1", GROUP, "none", 0) == []


@pytest.mark.group
def test_a_queue_that_is_locked_stays_so_when_another_member_leads(tmp_path: Path) -> None:
    with BrokerGroup(tmp_path) as group:
        leader = group.master()
        with BrokerClient(group.broker_addresses[leader]) as client:
            prepare(client, "t")
            assert client.lock("c1", GROUP, "t", 0, 1) == [0, 1]
        group.kill(leader)
        wait_for(lambda: group.master() != leader, "another member leads")

        with BrokerClient(group.broker_addresses[group.master()]) as client:
            assert client.lock("c2", GROUP, "t", 0, 1, 2) == [2]
            assert client.lock("c1", GROUP, "t", 0, 1) == [0, 1]


# -- one leader's decisions, step by step ----------------------------------------------------------


class Leader:
    """A leader whose proposals end when the test says so, and whose clock is the test's."""

    def __init__(self, *before: AnyStateRecord) -> None:
        self.state = BrokerState()
        self.now_s = 100.0
        self.term = 1
        self.proposed: list[tuple[AnyStateRecord, Callable[[Outcome], None]]] = []
        self.doubt: list[Callable[[RecordDraft], None]] = []
        """What takes each proposed draft if its outcome is unknown."""
        topic = TopicConfig(topic_name="t", read_queue_nums=4, write_queue_nums=4, perm=6)
        for record in (TopicSet(config=topic), *before):
            self._apply(record)
        self.locks = QueueLocks(
            cast("LogOwner", self), cast("StateChanges", self), lambda: self.now_s
        )

    is_proven = True

    def change(self, record: AnyStateRecord) -> AnyStateRecord:
        return record

    def propose(
        self, records: Sequence[Any], done: Callable[[Outcome], None], *, arrived_s: float | None,
        in_doubt: Callable[[RecordDraft], None],
    ) -> None:  # fmt: skip
        [record] = records
        self.proposed.append((record, done))
        self.doubt.append(in_doubt)

    def end(self, outcome: Outcome = Outcome.COMMITTED) -> None:
        """End the oldest proposal."""
        record, done = self.proposed.pop(0)
        if outcome is Outcome.COMMITTED:
            self._apply(record)
        done(outcome)

    def lock(self, client_id: str) -> list[Sequence[Queue] | None]:
        """Ask for the queue; return a list that gets the answer."""
        answers: list[Sequence[Queue] | None] = []
        self.locks.lock(client_id, GROUP, [QUEUE], answers.append)
        return answers

    def unlock(self, client_id: str) -> None:
        self.locks.unlock(client_id, GROUP, [QUEUE], lambda _: None)

    def _apply(self, record: AnyStateRecord) -> None:
        changes.make(self.state.tables, record, 1, 1)


def test_a_lock_is_granted_when_it_is_applied_and_not_before() -> None:
    leader = Leader()
    first = leader.lock("c1")
    assert first == []
    assert leader.lock("c2") == [[]]

    leader.end()

    assert first == [[QUEUE]]


def test_a_silent_holder_loses_its_queue_after_its_lease() -> None:
    leader = Leader()
    leader.lock("c1")
    leader.end()
    leader.now_s += LEASE_S - 1
    assert leader.lock("c1") == [[QUEUE]], "which renews it"
    leader.now_s += LEASE_S - 1
    assert leader.lock("c2") == [[]]

    leader.now_s += 1
    second = leader.lock("c2")
    leader.end()

    assert second == [[QUEUE]]
    assert leader.lock("c1") == [[]]


def test_a_new_leader_gives_every_holder_a_whole_lease() -> None:
    leader = Leader(QueuesLocked(client_id="c1", group=GROUP, queues=[("t", 0)]))
    assert leader.lock("c2") == [[]]
    leader.now_s += LEASE_S - 1
    leader.term = 2

    assert leader.lock("c2") == [[]]
    leader.now_s += LEASE_S - 1
    assert leader.lock("c2") == [[]]


def test_the_queues_of_silent_holders_are_made_free() -> None:
    leader = Leader(QueuesLocked(client_id="c1", group=GROUP, queues=[("t", 0)]))
    leader.locks.tick()
    leader.now_s += LEASE_S
    leader.locks.tick()
    leader.end()

    assert leader.state.holder(*QUEUE) is None
    assert leader.proposed == []


def test_a_refused_unlock_leaves_the_queue_to_its_holder() -> None:
    leader = Leader()
    leader.lock("c1")
    leader.unlock("c1")
    lock, unlock = leader.proposed
    leader.proposed = [unlock]
    leader.end(Outcome.REFUSED)
    leader.proposed = [lock]

    assert leader.lock("c2") == [[]], "the lock of the first one is still on its way"
    leader.end()
    assert leader.state.holder(*QUEUE) == "c1"


def test_a_lock_whose_fate_is_unknown_is_given_to_nobody_else() -> None:
    leader = Leader()
    answers = leader.lock("c1")
    leader.doubt[0](RecordDraft((), [], STATE_PLACE, lambda *_: None))
    leader.end(Outcome.UNKNOWN)

    assert answers == [None]
    assert leader.lock("c2") == [[]]


def test_a_lock_that_was_applied_after_its_fate_was_unknown_is_a_lock_like_others() -> None:
    """It once was taken for one on its way until the end of the term."""
    leader = Leader()
    leader.lock("c1")
    record, _ = leader.proposed[0]
    draft = RecordDraft((), [], STATE_PLACE, lambda *_: None)
    leader.doubt[0](draft)
    leader.end(Outcome.UNKNOWN)
    draft.positions = [1000]
    leader.state.tables.last_physical_offset = 1000 + ENTRY_HEADER_SIZE - 1
    assert leader.lock("c2") == [[]], "it may still be applied"
    leader._apply(record)
    leader.state.tables.last_physical_offset += 1

    assert leader.lock("c1") == [[QUEUE]]
    assert leader.proposed == [], "a renewal is not written"
    leader.now_s += LEASE_S
    leader.locks.tick()
    leader.now_s += LEASE_S
    leader.locks.tick()
    leader.end()
    assert leader.state.holder(*QUEUE) is None
