"""What a heartbeat says, without the parts that are refused.

A refused subscription costs its client nothing else: neither the other subscriptions of its
consumer nor its other groups.

A client repeats its heartbeat every 30 s, and one of 1,000 subscriptions takes some ms to read. So
one that equals the last one of its connection is not read again.
"""

import hashlib
from typing import Final, NamedTuple

import msgspec

from dledger_broker.door.connections.connection import BrokerConnection
from dledger_broker.door.consumer_groups.group_clients import Client
from dledger_broker.messages import tag_filter
from dledger_broker.messages.retries import retry_topic
from dledger_broker.messages.send_checks import RefusedError
from dledger_formats.rocketmq import loose_heartbeats, topic_names
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.consumer_groups import Consumer, Subscription

CLIENT_ID_LETTERS_MAX: Final = 255
_DIGEST_BYTES: Final = 16


class ReadHeartbeat(NamedTuple):
    """What a heartbeat says."""

    client: Client
    refusal: RefusedError | None
    """The first refusal of a part of it, which is left out."""
    digest: bytes
    """A hash of its body, which is not kept."""


class LastHeartbeats:
    """The last heartbeat of each connection."""

    def __init__(self) -> None:
        self._by_connection: dict[BrokerConnection, ReadHeartbeat] = {}

    def read(self, connection: BrokerConnection, body: bytes) -> ReadHeartbeat:
        """Return what a heartbeat says. Raises FormatError and RefusedError."""
        digest = hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()
        last = self._by_connection.get(connection)
        if last is not None and last.digest == digest:
            return last
        return ReadHeartbeat(*client_of(body), digest)

    def keep(self, connection: BrokerConnection, heartbeat: ReadHeartbeat) -> None:
        """Keep what was read, once this member has accepted the client."""
        self._by_connection[connection] = heartbeat

    def forget(self, connection: BrokerConnection) -> None:
        """Forget what a connection said: it is gone, or its client has left a group since."""
        self._by_connection.pop(connection, None)


def client_of(body: bytes) -> tuple[Client, RefusedError | None]:
    """Return what a heartbeat says, and the first refusal of a part of it, which is left out.

    Raises FormatError and RefusedError if nothing of it counts.
    """
    heartbeat = loose_heartbeats.read(body)
    client_id = heartbeat.client_id
    if not 0 < len(client_id) <= CLIENT_ID_LETTERS_MAX:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"the client id has {len(client_id)} letters; 1 to {CLIENT_ID_LETTERS_MAX} are allowed",
        )
    consumers: dict[str, Consumer] = {}
    refusals: list[RefusedError] = []
    for asked in heartbeat.consumer_data_set:
        consumer = _taken(asked, refusals)
        if consumer is not None:
            consumers[consumer.group_name] = consumer
    return Client(client_id, consumers, len(body)), refusals[0] if refusals else None


def _taken(asked: Consumer, refusals: list[RefusedError]) -> Consumer | None:
    """Return the accepted part of a consumer, sorted: Java's sets have no order.

    Return None if its group's name is refused, or if all its subscriptions are, besides that to its
    own retry topic: nobody would read its share of the queues.
    """
    group = asked.group_name
    count = len(refusals)
    try:
        retry_topic(group)
    except RefusedError as refusal:
        # The raised error would keep the stack frames that it passed, and what they hold.
        refusals.append(RefusedError(refusal.code, refusal.remark))
        return None
    taken = []
    for each in sorted(asked.subscription_data_set, key=lambda each: each.topic):
        subscription = msgspec.structs.replace(
            each, tags_set=sorted(each.tags_set), code_set=sorted(each.code_set)
        )
        try:
            _check(subscription)
        except RefusedError as refusal:
            refusals.append(RefusedError(refusal.code, f"{group}: {refusal.remark}"))
        else:
            taken.append(subscription)
    returns = topic_names.RETRY_PREFIX + group
    if len(refusals) > count and all(each.topic == returns for each in taken):
        return None
    return msgspec.structs.replace(asked, subscription_data_set=taken)


def _check(subscription: Subscription) -> None:
    """Refuse a subscription that could not be served, or written into the log."""
    if not topic_names.is_valid(subscription.topic):
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"{subscription.topic[:150]!r} is not the name of a topic",
        )
    tag_filter.check(subscription)
