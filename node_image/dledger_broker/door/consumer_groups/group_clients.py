"""The clients of consumer groups that are connected to this member.

A heartbeat says which groups the client of a connection belongs to. The log says which clients
belong to a group, whatever member they are connected to. This table says only which clients this
member can notify that a group has changed, and which subscriptions a pull of the connection means.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from dledger_broker.door.connections.connection import BrokerConnection
from dledger_broker.leading.client_leases import Membership
from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.state.groups import CLIENTS_BYTES_MAX, CLIENTS_MAX
from dledger_formats.protocol import frames
from dledger_formats.protocol.frames import ONEWAY_FLAG, RemotingCommand
from dledger_formats.rocketmq.codes import VERSION_5_3_3, RequestCode, ResponseCode
from dledger_formats.rocketmq.consumer_groups import (
    Consumer,
    ConsumerGroupFields,
    Subscription,
)
from dledger_node.slices import Slices

_OPAQUES: Final = 1 << 31
BROADCASTING: Final = "BROADCASTING"


class Client(NamedTuple):
    """What the last heartbeat of a connection said."""

    client_id: str
    consumers: Mapping[str, Consumer]
    """By group."""
    body_bytes: int


_NOBODY: Final = Client("", {}, 0)


class GroupClients:
    """Connections, and the groups of the clients behind them."""

    def __init__(self, owner: LogOwner) -> None:
        self._owner = owner
        self._by_connection: dict[BrokerConnection, Client] = {}
        self._connections: dict[str, dict[BrokerConnection, None]] = {}
        """By group."""
        self._holders: Counter[Membership] = Counter()
        """The number of connections of each client, by group."""
        self._memberships = self._body_bytes = 0
        self._unnotified: dict[str, dict[BrokerConnection, None]] = {}
        """The connections to be notified that a group has changed, by group."""
        self._telling = Slices(self._tell)
        self._newest: dict[str, dict[str, Subscription]] = {}
        """The newest subscription to each topic, by group, until its clients change: a look at
        1,000 of them takes half a ms.
        """
        self._opaque = 0
        self._tables = owner.state.tables

    def seen(self, connection: BrokerConnection, client: Client) -> list[Membership]:
        """Keep what a heartbeat says; return the memberships that no connection has any longer.

        Raises RefusedError if this member knows too many clients.
        """
        before = self._by_connection.get(connection)
        if before is not None and before == client:
            return []
        count = self._memberships + len(client.consumers)
        size = self._body_bytes + client.body_bytes
        if before is not None:
            count, size = count - len(before.consumers), size - before.body_bytes
        if count > CLIENTS_MAX or size > CLIENTS_BYTES_MAX:
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"clients with {self._memberships} memberships in groups and {self._body_bytes} "
                f"bytes of subscriptions are connected to this member; {CLIENTS_MAX} and "
                f"{CLIENTS_BYTES_MAX} are the limits",
            )
        return self._replace(connection, before, client)

    def forget(self, connection: BrokerConnection) -> list[Membership]:
        """Forget a connection; return the memberships that no other connection has."""
        before = self._by_connection.get(connection)
        return [] if before is None else self._replace(connection, before, _NOBODY)

    def _replace(
        self, connection: BrokerConnection, before: Client | None, client: Client
    ) -> list[Membership]:
        """Replace what is known of a connection; return the memberships that no other one has."""
        for group in client.consumers:
            self._connections.setdefault(group, {})[connection] = None
            self._holders[group, client.client_id] += 1
        self._memberships += len(client.consumers)
        self._body_bytes += client.body_bytes
        self._by_connection[connection] = client
        if not client.consumers:
            self._body_bytes -= client.body_bytes
            del self._by_connection[connection]
        return [] if before is None else self._remove(connection, before, client)

    def _remove(
        self, connection: BrokerConnection, before: Client, client: Client
    ) -> list[Membership]:
        """Remove what a client no longer says; return the memberships that no connection has."""
        self._memberships -= len(before.consumers)
        self._body_bytes -= before.body_bytes
        gone = []
        for group in before.consumers:
            if group not in client.consumers:
                del self._connections[group][connection]
                if not self._connections[group]:
                    del self._connections[group]
            membership = group, before.client_id
            self._holders[membership] -= 1
            if not self._holders[membership]:
                del self._holders[membership]
                gone.append(membership)
        return gone

    def left(self, connection: BrokerConnection, group: str) -> list[Membership]:
        """Record that the client of a connection has left a group.

        Returns the memberships that no other connection has.
        """
        client = self._by_connection.get(connection)
        if client is None or group not in client.consumers:
            return []
        others = {name: each for name, each in client.consumers.items() if name != group}
        return self.seen(connection, client._replace(consumers=others))

    def holds(self, membership: Membership) -> bool:
        """Return whether a connection to this member has said that it has this membership."""
        return membership in self._holders

    def held(self) -> list[Membership]:
        """Return all memberships of clients that are connected to this member."""
        return list(self._holders)

    def subscription(
        self, connection: BrokerConnection, group: str, topic: str
    ) -> Subscription | None:
        """Return what a pull of a connection wants, if the pull does not say it.

        It is what the connection's last heartbeat said. A client that has just connected sends its
        heartbeat within 30 s; until then it is the newest subscription of the group's clients.
        """
        if self._own(connection, group) is not None:
            return self.own_subscription(connection, group, topic)
        newest = self._newest.get(group)
        if newest is None:
            newest = _newest_by_topic(self._owner.state.consumers(group))
            if newest:
                self._newest[group] = newest
        return newest.get(topic)

    def own_subscription(
        self, connection: BrokerConnection, group: str, topic: str
    ) -> Subscription | None:
        """Return the subscription in the connection's last heartbeat; None if it has none."""
        own = self._own(connection, group)
        return None if own is None else _newest_by_topic([own]).get(topic)

    def is_broadcasting(self, connection: BrokerConnection, group: str) -> bool:
        """Return whether a connection's last heartbeat said that each client gets all messages."""
        own = self._own(connection, group)
        return own is not None and own.message_model == BROADCASTING

    def _own(self, connection: BrokerConnection, group: str) -> Consumer | None:
        """Return what the last heartbeat of a connection said of a group."""
        client = self._by_connection.get(connection)
        return None if client is None else client.consumers.get(group)

    def notify_changed(self) -> None:
        """Notify the connected clients of each group whose clients have changed.

        A group may have thousands: some are notified now, and the others in the next turns of the
        loop.
        """
        state = self._owner.state
        if self._tables is not state.tables:  # a snapshot has replaced the state
            self._tables = state.tables
            state.take_changed_groups()
            self._newest.clear()
            self._notify(list(self._connections))
        else:
            changed = state.take_changed_groups()
            for group in changed:
                self._newest.pop(group, None)
            self._notify(changed)

    def _notify(self, groups: Iterable[str]) -> None:
        configs = self._owner.state.tables.groups.configs
        for group in groups:
            connections, config = self._connections.get(group), configs.get(group)
            if connections and (config is None or config.notify_consumer_ids_changed_enable):
                self._unnotified.setdefault(group, {}).update(connections)
        self._telling.begin()

    def _tell(self, left: int) -> bool:
        """Notify the next clients that are still in their groups.

        A large group that changes all the time delays no other: the rest of it comes after the
        others.
        """
        while self._unnotified and left:
            group, connections = next(iter(self._unnotified.items()))
            del self._unnotified[group]
            notified = list(itertools.islice(connections, left))
            left -= len(notified)
            self._opaque = (self._opaque + 1) % _OPAQUES
            frame, members = ids_changed(group, self._opaque), self._connections.get(group, {})
            for connection in notified:
                del connections[connection]
                if connection in members:
                    connection.send(frame)
            if connections:
                self._unnotified[group] = connections
        return bool(self._unnotified)


def _newest_by_topic(consumers: Iterable[Consumer]) -> dict[str, Subscription]:
    """Return the newest subscription to each topic."""
    newest: dict[str, Subscription] = {}
    for consumer in consumers:
        for each in consumer.subscription_data_set:
            known = newest.get(each.topic)
            if known is None or each.sub_version > known.sub_version:
                newest[each.topic] = each
    return newest


def ids_changed(group: str, opaque: int) -> bytes:
    """Return the one-way request that notifies a client that its group has changed."""
    return frames.encode(
        RemotingCommand(
            code=int(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED),
            opaque=opaque,
            flag=ONEWAY_FLAG,
            ext_fields=ConsumerGroupFields(consumer_group=group).to_ext(),
            version=VERSION_5_3_3,
        )
    )
