"""The parts of a broker that need its open consume queues: they read messages, and take clients."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from dledger_broker import request_table
from dledger_broker.door.calls.call import Call
from dledger_broker.door.calls.dispatcher import BrokerRequests
from dledger_broker.door.connections.connection import BrokerConnection
from dledger_broker.door.connections.listeners import AcceptAt, Listeners
from dledger_broker.door.consumer_groups.group_clients import GroupClients
from dledger_broker.door.draining.isolation import Isolation
from dledger_broker.door.passing_on.to_leader import ToLeader
from dledger_broker.door.reading.pulled_messages import LoopReads
from dledger_broker.door.reading.pulls import Pulls
from dledger_broker.leading.delay_walker import DelayWalker
from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.cached_reads import cached_reader
from dledger_broker.queues.first_messages import FirstMessages
from dledger_broker.queues.first_messages_reading import FirstMessagesReading
from dledger_broker.queues.queue_store import QueueStore
from dledger_broker.queues.reader import MessageReader
from dledger_broker.queues.undelivered import UndeliveredMessages
from dledger_broker.request_table import Parts


class Serving:
    """What reads the queues of one member, and serves its clients."""

    def __init__(
        self,
        parts: Parts,
        store: QueueStore,
        clients: GroupClients,
        to_leader: ToLeader,
        accept_at: AcceptAt,
        *,
        pull_threads: ThreadPoolExecutor,
        delay_thread: ThreadPoolExecutor,
        hurry: Callable[[], None],
    ) -> None:
        """`store` has the open queues. `hurry` is called when a tick is needed soon."""
        member, owner, feed = parts.member, parts.owner, parts.feed
        self._feed, self._heartbeats, self._values = feed, parts.heartbeats, parts.counters.values
        self._to_leader, self._hurry = to_leader, hurry
        front = FirstMessages(member)
        self.front_reading = FirstMessagesReading(front, shown=self.built, failed=member.fail)
        reader = MessageReader(
            store, member.stored_at, lambda: member.begin_pos, owner.created_index,
            lambda: member.begin_index, front,
        )  # fmt: skip
        cached = LoopReads(cached_reader(store, member, owner.created_index), member.read_turns)
        self.pulls = Pulls(
            owner, clients, feed, reader, pull_threads, member, parts.proofs, self._pass_on, cached
        )
        self.isolation = Isolation(parts.settings.node, member, self.pulls, to_leader)
        self._walker = DelayWalker(owner, feed, reader, delay_thread, parts.addresses.store_host)
        self._undelivered = UndeliveredMessages(member, feed, reader, parts.threads)
        requests = self.requests = BrokerRequests(
            request_table.of_every_member(parts, self.pulls, reader),
            request_table.of_the_leader(parts, reader),
            request_table.of_the_leader_to_members(parts, self.pulls),
            to_leader,
            hurry,
        )

        def accept() -> BrokerConnection:
            return BrokerConnection(member, requests, self._forget)

        self.listeners = Listeners(parts.settings, accept, accept_at)

    @property
    def covered_index(self) -> int:
        """The index up to which neither queues nor delayed messages need the log."""
        return min(self._feed.saved_index, self._undelivered.covered_index)

    @property
    def is_idle(self) -> bool:
        """Whether nothing here needs a tick soon, apart from delayed messages."""
        return self.front_reading.is_idle

    def due_in_s(self) -> float:
        """Return the time until the next delayed message is due; it may be past."""
        return self._walker.due_in_s()

    def built(self, queues: Iterable[QueueId]) -> None:
        """Serve what waits for messages of these queues."""
        self.pulls.built(queues)
        self._walker.tick()

    def tick(self) -> None:
        """End the waits that are too long, and look for what is due."""
        self.front_reading.tick()
        self._walker.tick()
        self._undelivered.tick()
        self.isolation.tick()
        self.pulls.expire()
        self._values["held_pulls"] = self.pulls.held.count

    def _pass_on(self, pull: Call) -> None:
        """Let the leader answer a pull."""
        self._hurry()
        self._to_leader.take(pull)

    def _forget(self, connection: BrokerConnection) -> None:
        """Forget a connection that is gone."""
        self.pulls.forget(connection)
        self._heartbeats.forget(connection)
        self._hurry()
