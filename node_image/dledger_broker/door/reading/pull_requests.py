"""What a pull asks for, whether that is allowed, and how a member passes it on to the leader."""

from dataclasses import dataclass
from typing import Final

from dledger_broker.door.calls.call import Call
from dledger_broker.door.consumer_groups.group_clients import GroupClients
from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.messages import tag_filter
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.queues.builder import QueueId
from dledger_formats.protocol.decoding import Int64
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import Permission, PullSysFlag, ResponseCode
from dledger_formats.rocketmq.consumer_groups import Subscription
from dledger_formats.rocketmq.pulls import PullFields

HOLD_S_MAX: Final = 20.0
_READ: Final = int(Permission.READ)
_SUBSCRIPTION: Final = int(PullSysFlag.SUBSCRIPTION)
_CLASS_FILTER: Final = int(PullSysFlag.CLASS_FILTER)


class PassedOnFields(PullFields, kw_only=True, frozen=True):
    """The fields of a pull that another member passes on."""

    door_min_offset: Int64
    """The first offset of the queue that the other member has."""


@dataclass(eq=False, slots=True)
class Pull:
    """One pull, from its arrival to its answer."""

    call: Call
    fields: PullFields
    queue: QueueId
    subscription: Subscription
    codes: frozenset[int] | None
    """The codes of the wanted tags; None for all messages."""
    offset: int
    """The offset that is read next: that of the request, or the one after skipped messages; if the
    request's offset does not exist, the one where the consumer goes on.
    """
    deadline_s: float
    """Until when it may be held."""
    was_held: bool = False
    is_woken: bool = False
    """Whether its queue got units during the last read, which may have missed them."""
    is_proved: bool = False
    """Whether the state has everything that was acknowledged before the pull came."""

    @property
    def is_beyond(self) -> bool:
        """Whether the request asks for an offset beyond the end."""
        return self.offset < self.fields.queue_offset

    @property
    def door_min_offset(self) -> int | None:
        """The first offset of the member that passed the pull on; None if none did."""
        fields = self.fields
        return fields.door_min_offset if isinstance(fields, PassedOnFields) else None

    def for_leader(self, min_offset: int, now_s: float) -> Call:
        """Return the call that asks the leader, and is answered in place of this pull's.

        `min_offset` is the first offset of this member.

        The leader does not know the client's connection, so the call has the subscription. The
        leader's time counts from now on, since the pull may have been held for long before.
        """
        fields, subscription = self.fields, self.subscription
        passed_on = PassedOnFields(
            consumer_group=fields.consumer_group,
            topic=fields.topic,
            queue_id=fields.queue_id,
            queue_offset=max(self.offset, fields.queue_offset),
            max_msg_nums=fields.max_msg_nums,
            sys_flag=_SUBSCRIPTION,
            commit_offset=fields.commit_offset,
            suspend_timeout_millis=0,
            sub_version=subscription.sub_version,
            subscription=subscription.sub_string,
            expression_type=subscription.expression_type,
            max_msg_bytes=fields.max_msg_bytes,
            door_min_offset=min_offset,
        )
        call = self.call
        command = RemotingCommand(
            code=call.command.code, opaque=call.command.opaque, flag=call.command.flag,
            version=call.command.version, ext_fields=passed_on.to_ext(),
        )  # fmt: skip
        call.is_ended = True
        return Call(call.channel, command, call.door, now_s)


class PullRequests:
    """Reads pulls, and refuses those that ask for what they may not have."""

    def __init__(self, owner: LogOwner, clients: GroupClients) -> None:
        self._owner = owner
        self._clients = clients

    def read(self, call: Call, now_s: float) -> Pull:
        """Read a pull. Raises FormatError and RefusedError."""
        fields = call.fields(PassedOnFields if call.is_passed_on else PullFields)
        subscription = self._subscription(call, fields)
        codes = tag_filter.wanted_codes(subscription)
        hold_s = min(HOLD_S_MAX, max(0, fields.suspend_timeout_millis) / 1000)
        queue = QueueId(fields.topic, fields.queue_id)
        self._check_group(call, fields.consumer_group)
        self.check_queue(queue)
        if fields.queue_offset < 0:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER, f"the offset {fields.queue_offset} is below 0"
            )
        return Pull(call, fields, queue, subscription, codes, fields.queue_offset, now_s + hold_s)

    def is_outdated(self, pull: Pull) -> bool:
        """Return whether the client of a pull of some tags has subscribed to others since.

        Only the heartbeats of its own connection count: without one, the client has named no other
        tags.
        """
        fields = pull.fields
        if pull.codes is None or fields.sys_flag & _SUBSCRIPTION:
            return False
        group, topic = fields.consumer_group, fields.topic
        found = self._clients.own_subscription(pull.call.connection, group, topic)
        return found is not None and found.sub_string != pull.subscription.sub_string

    def check_queue(self, queue: QueueId) -> None:
        """Raise RefusedError if a queue does not exist, or cannot be read."""
        topic = self._owner.state.tables.topics.by_name.get(queue.topic)
        if topic is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"the topic {queue.topic[:150]!r} does not exist"
            )
        if topic.config is not None and not topic.config.perm & _READ:
            raise RefusedError(ResponseCode.NO_PERMISSION, f"{queue.topic} cannot be read")
        if not 0 <= queue.queue_id < len(topic.next_offsets):
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER, f"{queue.topic} has no queue {queue.queue_id}"
            )

    def _check_group(self, call: Call, group: str) -> None:
        config = self._owner.state.tables.groups.configs.get(group)
        if config is None:
            return
        # The member that passes a pull on has checked what only it knows.
        is_broadcasting = not call.is_passed_on and self._clients.is_broadcasting(
            call.connection, group
        )
        if not config.consume_enable or (is_broadcasting and not config.consume_broadcast_enable):
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the settings of the group {group} let nobody consume"
                + (" in broadcasting mode" if config.consume_enable else ""),
            )

    def _subscription(self, call: Call, fields: PullFields) -> Subscription:
        """Return what is wanted of the topic. Raises RefusedError."""
        if fields.sys_flag & _SUBSCRIPTION:
            return Subscription(
                topic=fields.topic,
                sub_string=fields.subscription or "",
                sub_version=fields.sub_version,
                expression_type=fields.expression_type,
                class_filter_mode=fields.sys_flag & _CLASS_FILTER != 0,
            )
        group, topic = fields.consumer_group, fields.topic
        found = self._clients.subscription(call.connection, group, topic)
        if found is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"no client of the group {group[:150]!r} has subscribed to {topic[:150]!r}; send a "
                "heartbeat first",
            )
        if found.sub_version < fields.sub_version:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"the broker has an older subscription of {group} to {topic}; send a heartbeat",
            )
        return found
