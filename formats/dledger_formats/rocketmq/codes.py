"""Codes and flags of RocketMQ that a broker needs (`RequestCode`, `ResponseCode`, `MessageSysFlag`,
`PullSysFlag`, `PermName` of Java).

The codes of other requests are left out: a broker answers REQUEST_CODE_NOT_SUPPORTED to them.
"""

from enum import IntEnum, IntFlag
from typing import Final

VERSION_5_3_1: Final = 475
VERSION_5_3_3: Final = 479
"""`version` of the frames of RocketMQ 5.3.3. It decides what the other side sends and accepts."""


class RequestCode(IntEnum):
    """What a client, an administrator's tool or another broker asks for."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    GET_ALL_TOPIC_CONFIG = 21
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    GET_CONSUMER_LIST_BY_GROUP = 38
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    """The broker sends it to clients, one-way."""
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ALL_DELAY_OFFSET = 45
    CHECK_CLIENT_CONFIG = 46
    REGISTER_BROKER = 103
    UNREGISTER_BROKER = 104
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    SEND_MESSAGE_V2 = 310
    SEND_BATCH_MESSAGE = 320
    GET_TOPIC_CONFIG = 351
    GET_SUBSCRIPTIONGROUP_CONFIG = 352
    LITE_PULL_MESSAGE = 361
    GET_ALL_MESSAGE_REQUEST_MODE = 402


class ResponseCode(IntEnum):
    """The outcome of a request. Unlike in DLedger's own protocol, success is 0."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    """Producers of 4.9 give up on it at once; those of 5.x send again."""
    REQUEST_CODE_NOT_SUPPORTED = 3
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    """The answer of a broker that may not store; every producer sends again."""
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    """The client drops its queue and goes on at the offset of the answer."""
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    INVALID_PARAMETER = 29
    GO_AWAY = 1500
    """The broker stops and has done nothing. Clients above 5.3.1 reconnect and ask again."""


class MessageSysFlag(IntFlag):
    """Bits of a message's `sys_flag`."""

    COMPRESSED = 1
    MULTI_TAGS = 2
    TRANSACTION_PREPARED = 4
    TRANSACTION_COMMIT = 8
    TRANSACTION_ROLLBACK = 12
    """Both bits: this is also the mask of the kind of transaction."""
    BORN_HOST_IPV6 = 16
    STORE_HOST_IPV6 = 32


class PullSysFlag(IntFlag):
    """Bits of a pull's `sys_flag`."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    """The broker may hold the request until a message arrives."""
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16


class Permission(IntFlag):
    """Bits of a topic's `perm`."""

    INHERIT = 1
    """The topic is a template: topics that are created by a first message may copy it."""
    WRITE = 2
    READ = 4
