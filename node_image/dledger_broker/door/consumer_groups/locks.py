"""Locks of queues, which ordered consumers need (41 and 42), at the leader."""

from collections.abc import Sequence

from dledger_broker.door.between_members.door_frames import Way
from dledger_broker.door.calls.call import Call
from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.leading.queue_locks import QueueLocks
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.state.groups import Queue
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.consumer_groups import LockedQueues, LockQueues, MessageQueue
from dledger_node.services.drafts import Outcome


class LockRequests:
    """Answers ordered consumers that lock and unlock their queues."""

    def __init__(self, owner: LogOwner, locks: QueueLocks, broker_name: str) -> None:
        self._owner = owner
        self._locks = locks
        self._broker_name = broker_name

    def lock(self, call: Call) -> None:
        """Lock queues; answer with those that a client holds. Raises FormatError, RefusedError."""
        request, queues = self._read(call)

        def locked(held: Sequence[Queue] | None) -> None:
            if held is None:
                call.turned(Way.IN_DOUBT)
                return
            body = LockedQueues(
                locked=[
                    MessageQueue(
                        topic=queue.topic, broker_name=self._broker_name, queue_id=queue.queue_id
                    )
                    for queue in held
                ]
            )
            call.answer(ResponseCode.SUCCESS, body=body.to_json())

        client_id, group = request.client_id, request.consumer_group
        self._locks.lock(client_id, group, queues, locked, call.arrived_s)

    def unlock(self, call: Call) -> None:
        """Unlock queues that a client holds. Raises FormatError, RefusedError."""
        request, queues = self._read(call)

        def unlocked(outcome: Outcome) -> None:
            if outcome is Outcome.COMMITTED:
                call.answer(ResponseCode.SUCCESS)
            else:
                call.turned(Way.IN_DOUBT)

        client_id, group = request.client_id, request.consumer_group
        self._locks.unlock(client_id, group, queues, unlocked, call.arrived_s)

    def _read(self, call: Call) -> tuple[LockQueues, list[Queue]]:
        request = call.body(LockQueues)
        assert isinstance(request, LockQueues)
        group = request.consumer_group
        if group not in self._owner.state.tables.groups.configs:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"there is no consumer group {group[:150]!r}; send a heartbeat first",
            )
        return request, [
            Queue(group, each.topic, each.queue_id)
            for each in request.mq_set
            if each.broker_name == self._broker_name
        ]
