"""Consumers that consume in order: they lock the queues of a topic, and unlock them."""

from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.consumer_groups import (
    Consumer,
    Heartbeat,
    LockedQueues,
    LockQueues,
    MessageQueue,
    Subscription,
)
from dledger_sim.broker.ports import Ask, Ports
from dledger_sim.broker.program import GROUP
from dledger_sim.judges.broker_rules import BrokerRules

LOCKED_TOPIC: Final = "orders"
LOCKED_QUEUES: Final = 2
ORDERED: Final = "ordered"
"""The group of these consumers."""
LOCK_ANSWER_S: Final = 1.0
LOCK_VALID_S: Final = 30.0
"""How long a client of RocketMQ relies on its locks after an answer."""
RENEWAL_S: Final = 20.0
"""How often a client of RocketMQ renews its locks."""


class Clock(Protocol):
    """The time of the run."""

    now_us: int


class OrderedConsumers:
    """The consumers of ordered messages; each has one request at a time."""

    def __init__(
        self, clock: Clock, rules: BrokerRules, ports: Ports, us_of: Callable[[float], int]
    ) -> None:
        """`us_of` converts a duration of the brokers to one of the run."""
        self._clock = clock
        self._rules = rules
        self._ports = ports
        self._us_of = us_of
        self._locking: set[int] = set()
        """Clients with a request about locks in flight."""
        self._renews_us: dict[int, int] = {}
        """When each client that holds locks renews them."""
        self._names: Counter[int] = Counter()
        """How often each client has changed its name."""

    def beat(self, member_id: str, client: int) -> None:
        """Send a heartbeat: join the group of ordered consumers, or stay in it."""
        consumer = Consumer(
            group_name=ORDERED, consume_type="CONSUME_PASSIVELY", message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            subscription_data_set=[
                Subscription(topic=LOCKED_TOPIC, sub_string="*", sub_version=1)
            ],
        )  # fmt: skip
        heartbeat = Heartbeat(client_id=self._name(client), consumer_data_set=[consumer])
        ask = Ask(int(RequestCode.HEART_BEAT), {}, heartbeat.to_json())
        self._ports.ask(client, member_id, ask, lambda _: None)

    def lock(self, member_id: str, client: int) -> None:
        """Lock all queues; the client relies on those in the answer for a while, and renews the
        locks before that ends.
        """
        if client in self._locking or self._clock.now_us < self._renews_us.get(client, 0):
            return

        def answered(answer: RemotingCommand | None) -> None:
            self._locking.discard(client)
            if answer is None or answer.code != ResponseCode.SUCCESS:
                return
            held = [queue.queue_id for queue in LockedQueues.from_json(answer.body).locked]
            self._rules.locked(client, held, self._us_of(LOCK_VALID_S))
            self._rules.unlocked(client, held)
            self._renews_us[client] = self._clock.now_us + self._us_of(RENEWAL_S if held else 0)

        ask = Ask(int(RequestCode.LOCK_BATCH_MQ), {}, _lock_body(self._name(client)))
        if self._ports.ask(client, member_id, ask, answered, LOCK_ANSWER_S):
            self._locking.add(client)

    def unlock(self, member_id: str, client: int) -> None:
        """Unlock all queues: the client no longer relies on them.

        If the client does not learn whether they are unlocked, it changes its name: the request may
        still take effect after the client has locked them again.
        """
        if client in self._locking:
            return

        def answered(answer: RemotingCommand | None) -> None:
            self._locking.discard(client)
            if answer is None or answer.code != ResponseCode.SUCCESS:
                self._names[client] += 1

        self._rules.unlocked(client)
        self._renews_us[client] = 0
        ask = Ask(int(RequestCode.UNLOCK_BATCH_MQ), {}, _lock_body(self._name(client)))
        if self._ports.ask(client, member_id, ask, answered):
            self._locking.add(client)

    def _name(self, client: int) -> str:
        return f"c{client}-{self._names[client]}"


def _lock_body(name: str) -> bytes:
    queues = [
        MessageQueue(topic=LOCKED_TOPIC, broker_name=GROUP, queue_id=queue_id)
        for queue_id in range(LOCKED_QUEUES)
    ]
    return LockQueues(consumer_group=ORDERED, client_id=name, mq_set=queues).to_json()
