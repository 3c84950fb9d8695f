"""The form of every request: its ext fields and body, and those of a successful answer."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from dledger_formats.rocketmq import (
    consumer_groups,
    names,
    offsets,
    pulls,
    sends,
    subscription_groups,
    topics,
)
from dledger_formats.rocketmq.codes import RequestCode
from dledger_formats.rocketmq.ext_fields import ExtFields, NoFields
from dledger_formats.rocketmq.json_bodies import JsonBody


class RequestForm(NamedTuple):
    """The classes of one request. A body that is None is not JSON: it is empty, or a message."""

    fields: type[ExtFields] = NoFields
    body: type[JsonBody] | None = None
    answer_fields: type[ExtFields] = NoFields
    answer_body: type[JsonBody] | None = None


_SEND: Final = RequestForm(sends.SendMessageFields, answer_fields=sends.SendAnswerFields)
_PULL: Final = RequestForm(pulls.PullFields, answer_fields=pulls.PullAnswerFields)
_OFFSET: Final = offsets.OffsetAnswerFields

FORMS: Final[Mapping[RequestCode, RequestForm]] = {
    RequestCode.SEND_MESSAGE: _SEND._replace(fields=sends.LongSendMessageFields),
    RequestCode.SEND_MESSAGE_V2: _SEND,
    RequestCode.SEND_BATCH_MESSAGE: _SEND,
    RequestCode.CONSUMER_SEND_MSG_BACK: RequestForm(sends.SendBackFields),
    RequestCode.PULL_MESSAGE: _PULL,
    RequestCode.LITE_PULL_MESSAGE: _PULL,
    RequestCode.QUERY_CONSUMER_OFFSET: RequestForm(
        offsets.QueryConsumerOffsetFields, answer_fields=_OFFSET
    ),
    RequestCode.UPDATE_CONSUMER_OFFSET: RequestForm(offsets.UpdateConsumerOffsetFields),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: RequestForm(
        offsets.SearchOffsetFields, answer_fields=_OFFSET
    ),
    RequestCode.GET_MAX_OFFSET: RequestForm(offsets.MaxOffsetFields, answer_fields=_OFFSET),
    RequestCode.GET_MIN_OFFSET: RequestForm(offsets.QueueFields, answer_fields=_OFFSET),
    RequestCode.GET_EARLIEST_MSG_STORETIME: RequestForm(
        offsets.QueueFields, answer_fields=offsets.TimestampAnswerFields
    ),
    RequestCode.VIEW_MESSAGE_BY_ID: RequestForm(offsets.ViewMessageFields),
    RequestCode.GET_ALL_CONSUMER_OFFSET: RequestForm(answer_body=offsets.ConsumerOffsets),
    RequestCode.GET_ALL_DELAY_OFFSET: RequestForm(answer_body=offsets.DelayOffsets),
    RequestCode.UPDATE_AND_CREATE_TOPIC: RequestForm(topics.CreateTopicFields),
    RequestCode.DELETE_TOPIC_IN_BROKER: RequestForm(topics.TopicFields),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: RequestForm(topics.TopicFields),
    RequestCode.GET_TOPIC_CONFIG: RequestForm(topics.TopicFields, answer_body=topics.TopicConfig),
    RequestCode.GET_ALL_TOPIC_CONFIG: RequestForm(answer_body=topics.TopicTable),
    RequestCode.GET_BROKER_RUNTIME_INFO: RequestForm(answer_body=names.RuntimeInfo),
    RequestCode.HEART_BEAT: RequestForm(
        body=consumer_groups.Heartbeat, answer_fields=consumer_groups.HeartbeatAnswerFields
    ),
    RequestCode.UNREGISTER_CLIENT: RequestForm(consumer_groups.UnregisterClientFields),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: RequestForm(
        consumer_groups.ConsumerGroupFields, answer_body=consumer_groups.ConsumerIds
    ),
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: RequestForm(consumer_groups.ConsumerGroupFields),
    RequestCode.LOCK_BATCH_MQ: RequestForm(
        body=consumer_groups.LockQueues, answer_body=consumer_groups.LockedQueues
    ),
    RequestCode.UNLOCK_BATCH_MQ: RequestForm(body=consumer_groups.LockQueues),
    RequestCode.CHECK_CLIENT_CONFIG: RequestForm(body=consumer_groups.CheckClient),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: RequestForm(
        body=subscription_groups.SubscriptionGroup
    ),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: RequestForm(
        answer_body=subscription_groups.SubscriptionGroupTable
    ),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: RequestForm(
        subscription_groups.GroupFields, answer_body=subscription_groups.SubscriptionGroup
    ),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: RequestForm(subscription_groups.DeleteGroupFields),
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: RequestForm(
        answer_body=subscription_groups.MessageRequestModes
    ),
    RequestCode.REGISTER_BROKER: RequestForm(
        names.RegisterBrokerFields, names.RegisterBroker, names.RegisteredFields
    ),
    RequestCode.UNREGISTER_BROKER: RequestForm(names.UnregisterBrokerFields),
    RequestCode.GET_ROUTEINFO_BY_TOPIC: RequestForm(
        topics.TopicFields, answer_body=names.TopicRoute
    ),
    RequestCode.GET_BROKER_CLUSTER_INFO: RequestForm(answer_body=names.ClusterInfo),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: RequestForm(answer_body=names.TopicList),
}

assert set(FORMS) == set(RequestCode)
