"""What a leader spends on looking at as many locks of queues as there may be."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from dledger_broker.leading.queue_locks import FREED_MAX, LEASE_S, UNLOCKS_MAX, QueueLocks
from dledger_broker.state.broker_state import BrokerState
from dledger_broker.state.groups import LOCKS_MAX, Queue
from dledger_formats.rocketmq.state_records import QueuesUnlocked
from dledger_node.services.drafts import Outcome
from tools.groups.turns import TURN_S_MAX, slowness

CLIENTS = 300


class Leader:
    """A leader whose state has locks, and a clock; changes are applied at once."""

    def __init__(self, locks: int) -> None:
        self.now_s, self.term, self.is_proven, self.state = 0.0, 1, True, BrokerState()
        self.holders = self.state.tables.groups.holders
        for number in range(locks):
            self.holders[Queue("g", f"t{number // 1000}", number % 1000)] = f"c{number % CLIENTS}"
        self.proposed = 0
        parts: Any = (self, SimpleNamespace(propose=self._propose))
        self.locks = QueueLocks(*parts, lambda: self.now_s)

    def change(self, record: QueuesUnlocked) -> QueuesUnlocked:
        return record

    def _propose(
        self, records: list[QueuesUnlocked], done: Callable[[Outcome], None], **_: object
    ) -> None:
        self.proposed += 1
        for topic, queue_id in records[0].queues:
            del self.holders[Queue("g", topic, queue_id)]
        done(Outcome.COMMITTED)

    def tick(self) -> float:
        """Look once after 50 ms; return the processor time that it takes."""
        self.now_s += 0.05
        begun_s = time.thread_time()
        self.locks.tick()
        return time.thread_time() - begun_s


def test_no_turn_looks_at_all_locks_and_those_of_silent_clients_are_freed_soon() -> None:
    """The leader once looked at 200,000 locks in a turn, each second: it took 0.2 s."""
    leader = Leader(LOCKS_MAX)
    took_s = []
    freed = proposed = 0
    while leader.now_s < LEASE_S + 10:
        before = len(leader.holders), leader.proposed
        took_s.append(leader.tick())
        freed = max(freed, before[0] - len(leader.holders))
        proposed = max(proposed, leader.proposed - before[1])

    assert 0 < freed <= FREED_MAX
    assert 0 < proposed <= UNLOCKS_MAX
    assert len(leader.holders) < LOCKS_MAX
    assert sorted(took_s)[-4] < TURN_S_MAX * slowness(), "a few are those of the collector"


def test_the_locks_of_silent_clients_are_freed_although_there_are_many() -> None:
    leader = Leader(20_000)
    while leader.now_s < LEASE_S:
        leader.tick()
        assert len(leader.holders) == 20_000
    while leader.holders:
        leader.tick()
        assert leader.now_s < 2 * LEASE_S, "all are free soon after their time"


def test_a_leader_that_is_deposed_while_it_looks_at_its_locks_has_none_to_look_at() -> None:
    leader = Leader(2500)
    leader.tick()
    assert leader.locks.is_sweeping

    leader.is_proven = False
    leader.locks.tick()

    assert not leader.locks.is_sweeping
