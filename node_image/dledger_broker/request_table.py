"""Which part of the broker answers which request, by code."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from dledger_broker.door.administration.changes import Administration
from dledger_broker.door.administration.tables import TableRequests
from dledger_broker.door.between_members import door_frames
from dledger_broker.door.calls.dispatcher import Serve
from dledger_broker.door.consumer_groups.group_requests import GroupRequests
from dledger_broker.door.consumer_groups.heartbeats import Heartbeats
from dledger_broker.door.consumer_groups.locks import LockRequests
from dledger_broker.door.reading.group_offsets import GroupOffsets
from dledger_broker.door.reading.proofs import Proofs
from dledger_broker.door.reading.pulls import Pulls
from dledger_broker.door.reading.queue_offsets import QueueOffsets, young_bytes
from dledger_broker.door.reading.route_requests import RouteRequests
from dledger_broker.door.reading.views import MessageViews
from dledger_broker.door.sending.awaited_repeats import AwaitedRepeats
from dledger_broker.door.sending.returns import Returns
from dledger_broker.door.sending.sends import Sends
from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.leading.offset_commits import OffsetCommits
from dledger_broker.leading.queue_locks import QueueLocks
from dledger_broker.leading.state_changes import StateChanges
from dledger_broker.metrics import BrokerCounters
from dledger_broker.queues.feed import QueueFeed
from dledger_broker.queues.reader import MessageReader
from dledger_broker.registration.addresses import Addresses
from dledger_broker.settings import BrokerSettings
from dledger_formats.rocketmq.codes import RequestCode
from dledger_node.embedding import Member


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a broker that answer requests, or that such parts need."""

    settings: BrokerSettings
    addresses: Addresses
    member: Member
    counters: BrokerCounters
    threads: ThreadPoolExecutor
    owner: LogOwner
    changes: StateChanges
    commits: OffsetCommits
    queue_locks: QueueLocks
    feed: QueueFeed
    sends: Sends
    awaited: AwaitedRepeats
    proofs: Proofs
    heartbeats: Heartbeats
    groups: GroupRequests


def of_every_member(parts: Parts, pulls: Pulls, reader: MessageReader) -> dict[int, Serve]:
    """Return the services that every member offers."""
    return _of_clients(parts, pulls, reader) | _views(parts, reader)


def _queue_offsets(parts: Parts, reader: MessageReader) -> QueueOffsets:
    young = young_bytes(parts.settings.node.memory_limit_bytes)
    return QueueOffsets(parts.owner, parts.feed, reader, parts.proofs, parts.threads, young)


def _of_clients(parts: Parts, pulls: Pulls, reader: MessageReader) -> dict[int, Serve]:
    queues = _queue_offsets(parts, reader)
    name_server = RouteRequests(parts.settings, parts.member, parts.owner, parts.addresses)
    code = RequestCode
    return {
        int(code.PULL_MESSAGE): pulls.pull,
        int(code.LITE_PULL_MESSAGE): pulls.pull,
        int(code.SEARCH_OFFSET_BY_TIMESTAMP): queues.search,
        int(code.GET_MAX_OFFSET): queues.max_offset,
        int(code.GET_MIN_OFFSET): queues.min_offset,
        int(code.GET_EARLIEST_MSG_STORETIME): queues.earliest,
        int(code.HEART_BEAT): parts.heartbeats.beat,
        int(code.UNREGISTER_CLIENT): parts.heartbeats.leave,
        int(code.GET_CONSUMER_LIST_BY_GROUP): parts.groups.client_ids,
        int(code.CHECK_CLIENT_CONFIG): parts.groups.check,
        int(code.GET_ROUTEINFO_BY_TOPIC): name_server.route,
        int(code.GET_BROKER_CLUSTER_INFO): name_server.cluster,
        int(code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER): name_server.topics,
    }


def _views(parts: Parts, reader: MessageReader) -> dict[int, Serve]:
    """Return the services for administrators and other brokers that every member offers."""
    tables = TableRequests(
        parts.settings, parts.member, parts.owner, parts.threads, parts.counters.values
    )
    views = MessageViews(parts.owner, reader, parts.threads)
    code = RequestCode
    return {
        int(code.GET_ALL_TOPIC_CONFIG): tables.topics,
        int(code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG): tables.groups,
        int(code.GET_ALL_CONSUMER_OFFSET): tables.consumer_offsets,
        int(code.GET_ALL_DELAY_OFFSET): tables.delay_offsets,
        int(code.GET_ALL_MESSAGE_REQUEST_MODE): tables.request_modes,
        int(code.GET_TOPIC_CONFIG): tables.topic,
        int(code.GET_SUBSCRIPTIONGROUP_CONFIG): tables.group,
        int(code.GET_BROKER_RUNTIME_INFO): tables.runtime,
        int(code.VIEW_MESSAGE_BY_ID): views.message,
        int(code.DELETE_TOPIC_IN_NAMESRV): Administration.delete_topic_from_names,
    }


def of_the_leader(parts: Parts, reader: MessageReader) -> dict[int, Serve]:
    """Return the services that only the leader offers."""
    send = parts.sends.send
    offsets = GroupOffsets(parts.commits, _queue_offsets(parts, reader), parts.proofs)
    returns = Returns(
        parts.member, parts.owner, reader, parts.awaited, parts.threads,
        parts.addresses.store_host,
    )  # fmt: skip
    locks = LockRequests(parts.owner, parts.queue_locks, parts.settings.name)
    changes = Administration(parts.owner, parts.commits, parts.changes)
    code = RequestCode
    return {
        int(code.SEND_MESSAGE): send,
        int(code.SEND_MESSAGE_V2): send,
        int(code.SEND_BATCH_MESSAGE): send,
        int(code.QUERY_CONSUMER_OFFSET): offsets.query,
        int(code.UPDATE_CONSUMER_OFFSET): offsets.update,
        int(code.CONSUMER_SEND_MSG_BACK): returns.take,
        int(code.LOCK_BATCH_MQ): locks.lock,
        int(code.UNLOCK_BATCH_MQ): locks.unlock,
        int(code.UPDATE_AND_CREATE_TOPIC): changes.set_topic,
        int(code.DELETE_TOPIC_IN_BROKER): changes.delete_topic,
        int(code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP): changes.set_group,
        int(code.DELETE_SUBSCRIPTIONGROUP): changes.delete_group,
    }


def of_the_leader_to_members(parts: Parts, pulls: Pulls) -> dict[int, Serve]:
    """Return the services that the leader offers to the members, for their clients."""
    return {
        int(RequestCode.HEART_BEAT): parts.groups.join,
        int(RequestCode.UNREGISTER_CLIENT): parts.groups.leave,
        door_frames.PRESENCE: parts.groups.note,
        int(RequestCode.PULL_MESSAGE): pulls.pull,
        int(RequestCode.LITE_PULL_MESSAGE): pulls.pull,
    }
