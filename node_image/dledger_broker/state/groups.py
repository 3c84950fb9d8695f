"""Consumer groups, the clients that belong to them, and which client holds which queue."""

from collections import Counter
from typing import Final, NamedTuple, Self

from dledger_broker.state.topics import CONFIG_BYTES_MAX
from dledger_formats.rocketmq.consumer_groups import Consumer
from dledger_formats.rocketmq.subscription_groups import SubscriptionGroup

GROUPS_MAX: Final = 10_000
CLIENTS_MAX: Final = 20_000
"""Memberships of clients in groups."""
CLIENTS_BYTES_MAX: Final = 16 * 1024 * 1024
"""The JSON of all memberships with their subscriptions; in memory they take several times that."""
LOCKS_MAX: Final = 200_000


class Queue(NamedTuple):
    """A queue as one consumer group sees it."""

    group: str
    topic: str
    queue_id: int


class Groups:
    """All consumer groups."""

    def __init__(self) -> None:
        self.configs: dict[str, SubscriptionGroup] = {}
        self.clients: dict[str, dict[str, Consumer]] = {}
        """By group, then by client id. A group without clients is left out."""
        self.clients_count = 0
        self.clients_bytes = 0
        self.holders: dict[Queue, str] = {}
        """The client that holds each locked queue."""
        self._locks: Counter[str] = Counter()
        """How many queues the clients of a group hold. A group without locks is left out."""
        self.changed: dict[str, None] = {}
        """Groups whose clients changed since they were last taken; not part of the state."""

    def refusal(self, config: SubscriptionGroup) -> str | None:
        """Return why these settings cannot be set, in words; None if they can."""
        name = config.group_name
        if len(config.to_json()) > CONFIG_BYTES_MAX:
            return f"the settings of the group {name} have more than {CONFIG_BYTES_MAX} bytes"
        if name not in self.configs and len(self.configs) >= GROUPS_MAX:
            return f"the broker has {GROUPS_MAX} consumer groups, which is the limit"
        return None

    def join_refusal(self, client_id: str, consumer: Consumer) -> str | None:
        """Return why a client cannot be a member of a group, in words; None if it can."""
        group = consumer.group_name
        if group not in self.configs:
            return f"there is no consumer group {group}"
        count, size = self.clients_count, self.clients_bytes + len(consumer.to_json())
        before = self.clients.get(group, {}).get(client_id)
        if before is None:
            count += 1
        else:
            size -= len(before.to_json())
        if count > CLIENTS_MAX or size > CLIENTS_BYTES_MAX:
            return (
                f"the broker has {self.clients_count} clients with {self.clients_bytes} bytes of "
                f"subscriptions; {CLIENTS_MAX} and {CLIENTS_BYTES_MAX} are the limits"
            )
        return None

    def join(self, client_id: str, consumer: Consumer) -> None:
        """Add a client to a group, or replace its subscriptions."""
        members = self.clients.setdefault(consumer.group_name, {})
        before = members.get(client_id)
        if before is None:
            self.clients_count += 1
        else:
            self.clients_bytes -= len(before.to_json())
        members[client_id] = consumer
        self.changed[consumer.group_name] = None
        self.clients_bytes += len(consumer.to_json())

    def leave(self, client_id: str, group: str) -> bool:
        """Remove a client from a group. Returns False if it is no member."""
        members = self.clients.get(group, {})
        before = members.pop(client_id, None)
        if before is None:
            return False
        self.clients_count -= 1
        self.clients_bytes -= len(before.to_json())
        if not members:
            del self.clients[group]
        self.changed[group] = None
        return True

    def lock(self, client_id: str, queue: Queue) -> bool:
        """Make a client the holder of a queue. Returns False if there are too many holders."""
        if queue not in self.holders:
            if len(self.holders) >= LOCKS_MAX:
                return False
            self._locks[queue.group] += 1
        self.holders[queue] = client_id
        return True

    def has_locks(self, group: str) -> bool:
        """Return whether a client holds a queue of a group, as clients that consume in order do."""
        return group in self._locks

    def unlock(self, client_id: str, queue: Queue) -> bool:
        """Unlock a queue. Returns False if this client does not hold it."""
        if self.holders.get(queue) != client_id:
            return False
        self._free(queue)
        return True

    def unlock_topic(self, topic: str) -> None:
        """Unlock all queues of a topic."""
        for queue in [queue for queue in self.holders if queue.topic == topic]:
            self._free(queue)

    def _free(self, queue: Queue) -> None:
        del self.holders[queue]
        self._locks[queue.group] -= 1
        if not self._locks[queue.group]:
            del self._locks[queue.group]

    def copy(self) -> Self:
        """Return a copy that does not change when these do."""
        other = type(self)()
        other.configs = self.configs.copy()
        other.clients = {group: members.copy() for group, members in self.clients.items()}
        other.clients_count, other.clients_bytes = self.clients_count, self.clients_bytes
        other.holders, other._locks = self.holders.copy(), self._locks.copy()
        return other
