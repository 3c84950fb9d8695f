"""Pulls (codes 11 and 361): answered by every member, from its own queues and log.

A pull at the end of its queue is held until a message arrives, its time is up, or its client is
gone. Offsets that do not exist are corrected by a leader only, once it has proved itself: another
member may lag behind.
"""

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from dledger_broker.door.call import Call
from dledger_broker.door.connection import BrokerConnection
from dledger_broker.door.group_clients import GroupClients
from dledger_broker.door.offsets_beyond import OffsetsBeyond, Prover
from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.messages import tag_filter
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.feed import QueueFeed
from dledger_broker.queues.reader import (
    DeletedError,
    Found,
    MessageReader,
    NotBuiltError,
    UnitRefusedError,
    UnreadableError,
)
from dledger_formats.rocketmq.codes import Permission, PullSysFlag, ResponseCode
from dledger_formats.rocketmq.consumer_groups import Subscription
from dledger_formats.rocketmq.pulls import PullAnswerFields, PullFields
from dledger_node.remoting.limits import Reason

HELD_MAX: Final = 20_000
HELD_OF_CLIENT_MAX: Final = 4096
HOLD_S_MAX: Final = 20.0
MESSAGES_MAX: Final = 1024
BYTES_MAX: Final = 256 * 1024
SWEEP_S: Final = 0.25
_READ: Final = int(Permission.READ)
_SUBSCRIPTION: Final = int(PullSysFlag.SUBSCRIPTION)
_SUSPEND: Final = int(PullSysFlag.SUSPEND)
_CLASS_FILTER: Final = int(PullSysFlag.CLASS_FILTER)


@dataclass(eq=False, slots=True)
class Pull:
    """One pull, from its arrival to its answer."""

    call: Call
    fields: PullFields
    queue: QueueId
    codes: frozenset[int] | None
    """The codes of the wanted tags; None for all messages."""
    deadline_s: float
    """Until when it may be held."""


class Pulls:
    """Answers the pulls of all connections."""

    def __init__(
        self,
        owner: LogOwner,
        clients: GroupClients,
        feed: QueueFeed,
        reader: MessageReader,
        threads: ThreadPoolExecutor,
        member: Prover,
    ) -> None:
        """`member` proves that it leads before it corrects an offset behind the end of a queue."""
        self._owner = owner
        self._clients = clients
        self._feed = feed
        self._reader = reader
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._held: dict[QueueId, dict[Pull, None]] = {}
        self._held_by_line: dict[object, dict[Pull, None]] = {}
        self.held_count = 0
        self._beyond = OffsetsBeyond[Pull](member, self._judged)

    def pull(self, call: Call) -> None:
        """Take one pull. Raises FormatError and RefusedError."""
        fields = call.fields(PullFields)
        pull = Pull(
            call,
            fields,
            QueueId(fields.topic, fields.queue_id),
            self._codes_of(call, fields),
            self._loop.time() + min(HOLD_S_MAX, max(0, fields.suspend_timeout_millis) / 1000),
        )
        self._check_group(call, fields.consumer_group)
        self._check_queue(pull.queue)
        if fields.queue_offset < 0:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER, f"the offset {fields.queue_offset} is below 0"
            )
        self._serve(pull)

    def built(self, queues: Iterable[QueueId]) -> None:
        """Serve the pulls that wait for messages of these queues."""
        for queue in queues:
            for pull in list(self._held.get(queue, ())):
                self._release(pull)
                self._serve(pull)

    def applied(self) -> None:
        """Take note that further entries are applied."""
        self._beyond.go_on()

    def forget(self, line: object) -> None:
        """Drop the pulls of a connection that is gone."""
        for pull in list(self._held_by_line.get(line, ())):
            self._release(pull)

    def expire(self) -> None:
        """Answer the pulls that were held long enough."""
        now_s = self._loop.time()
        for waiting in list(self._held.values()):
            for pull in [pull for pull in waiting if pull.deadline_s <= now_s]:
                self._release(pull)
                self._answer_nothing(pull, ResponseCode.PULL_NOT_FOUND)

    def cut_off(self, arrived_until_s: float) -> None:
        """Cut the connections of the pulls that came until then: this member has no leader."""
        for line, pulls in list(self._held_by_line.items()):
            if min(pull.call.arrived_s for pull in pulls) <= arrived_until_s:
                assert isinstance(line, BrokerConnection)
                line.cut(Reason.ISOLATED, "this member has no leader; another one may have")

    def close(self) -> None:
        """Answer all held pulls, so that clients ask another member."""
        for waiting in list(self._held.values()):
            for pull in list(waiting):
                self._release(pull)
                self._answer_nothing(pull, ResponseCode.PULL_RETRY_IMMEDIATELY)

    # -- serving -----------------------------------------------------------------------------------

    def _serve(self, pull: Pull) -> None:
        """Read in a thread, hold, or correct the offset."""
        end_offset = self._owner.state.next_offset(*pull.queue)
        offset = pull.fields.queue_offset
        if offset < end_offset:
            pull.call.line.reads_waiting += 1
            self._loop.create_task(self._read(pull, end_offset, self._feed.has_all))
        elif offset > end_offset and self._owner.is_proven:
            self._beyond.judge(pull)
        else:
            self._hold(pull)

    def _judged(self, pull: Pull, is_proved: bool) -> None:
        """Correct the offset if this member has proved that no message has it."""
        end_offset = self._owner.state.next_offset(*pull.queue)
        if not is_proved:
            self._hold(pull)
        elif pull.fields.queue_offset > end_offset:
            self._answer_nothing(pull, ResponseCode.PULL_OFFSET_MOVED, end_offset)
        else:
            self._serve(pull)

    async def _read(self, pull: Pull, end_offset: int, has_all: bool) -> None:
        line, built_index = pull.call.line, self._feed.built_index
        rebuilds, created_index = self._feed.rebuilds, self._owner.created_index(pull.queue.topic)
        try:
            min_offset, found = await self._loop.run_in_executor(
                self._threads, self._find, pull, end_offset, has_all
            )
        except (DeletedError, NotBuiltError):
            self._hold(pull)  # the units of a deleted topic will go, and those that lack will come
            return
        except UnitRefusedError as error:
            if created_index != self._owner.created_index(pull.queue.topic):
                self._serve_again(pull)
                return
            if rebuilds == self._feed.rebuilds:  # otherwise its files were deleted meanwhile
                self._feed.rebuild(str(error))
            self._hold(pull)
            return
        except (UnreadableError, OSError) as error:
            pull.call.answer(ResponseCode.SYSTEM_ERROR, remark=str(error))
            return
        finally:
            line.reads_waiting -= 1
            line.go_on()
        if created_index != self._owner.created_index(pull.queue.topic):
            self._serve_again(pull)
        elif found is None:
            if self._owner.is_proven:
                self._answer_nothing(pull, ResponseCode.PULL_OFFSET_MOVED, min_offset, min_offset)
            else:
                self._hold(pull)
        elif found.is_complete:
            self._answer(pull, found, min_offset, end_offset)
        elif has_all:
            self._feed.rebuild(f"{pull.queue} has no unit {pull.fields.queue_offset}")
            self._hold(pull)
        elif self._feed.built_index != built_index:
            self._serve(pull)
        else:
            self._hold(pull)

    def _serve_again(self, pull: Pull) -> None:
        """Serve a pull whose topic was deleted while its messages were read."""
        try:
            self._check_queue(pull.queue)
        except RefusedError as error:
            pull.call.refuse(error)
        else:
            self._serve(pull)

    def _find(self, pull: Pull, end_offset: int, has_all: bool) -> tuple[int, Found | None]:
        """Return the first offset, and the messages; None if the wanted one was removed. Blocks."""
        reader, fields = self._reader, pull.fields
        min_offset = reader.min_offset(pull.queue, end_offset, has_all=has_all)
        if fields.queue_offset < min_offset:
            return min_offset, None
        found = reader.pull(
            pull.queue,
            fields.queue_offset,
            end_offset,
            messages_max=min(MESSAGES_MAX, max(1, fields.max_msg_nums)),
            bytes_max=min(BYTES_MAX, max(1, fields.max_msg_bytes or BYTES_MAX)),
            codes=pull.codes,
        )
        return min_offset, found

    def _answer(self, pull: Pull, found: Found, min_offset: int, end_offset: int) -> None:
        fields = PullAnswerFields(
            suggest_which_broker_id=0,
            next_begin_offset=found.next_offset,
            min_offset=min_offset,
            max_offset=end_offset,
        )
        if not found.records:
            pull.call.answer(
                ResponseCode.PULL_RETRY_IMMEDIATELY, fields, remark="NO_MATCHED_MESSAGE"
            )
            return
        body = b"".join(found.records)
        values = pull.call.counters.values
        values["messages_pulled"] += len(found.records)
        values["bytes_pulled"] += len(body)
        pull.call.answer(ResponseCode.SUCCESS, fields, remark="FOUND", body=body)

    def _answer_nothing(
        self, pull: Pull, code: ResponseCode, next_offset: int | None = None, min_offset: int = 0
    ) -> None:
        offset = pull.fields.queue_offset if next_offset is None else next_offset
        end_offset = self._owner.state.next_offset(*pull.queue)
        fields = PullAnswerFields(
            suggest_which_broker_id=0,
            next_begin_offset=offset,
            min_offset=min_offset,
            max_offset=end_offset,
        )
        pull.call.answer(code, fields, remark=code.name)

    # -- holding -----------------------------------------------------------------------------------

    def _hold(self, pull: Pull) -> None:
        """Hold a pull, or answer it if it must not wait."""
        if not pull.fields.sys_flag & _SUSPEND or pull.deadline_s <= self._loop.time():
            self._answer_nothing(pull, ResponseCode.PULL_NOT_FOUND)
            return
        of_line = self._held_by_line.setdefault(pull.call.line, {})
        if self.held_count >= HELD_MAX or len(of_line) >= HELD_OF_CLIENT_MAX:
            if not of_line:
                del self._held_by_line[pull.call.line]
            pull.call.answer(ResponseCode.SYSTEM_ERROR, remark="too many pulls wait for messages")
            return
        self.held_count += 1
        of_line[pull] = None
        self._held.setdefault(pull.queue, {})[pull] = None

    def _release(self, pull: Pull) -> None:
        """Hold a pull no longer."""
        self.held_count -= 1
        table: dict[object, dict[Pull, None]]
        for table, key in ((self._held, pull.queue), (self._held_by_line, pull.call.line)):  # type: ignore[assignment]
            del table[key][pull]
            if not table[key]:
                del table[key]

    def _check_group(self, call: Call, group: str) -> None:
        config = self._owner.state.tables.groups.configs.get(group)
        if config is None:
            return
        is_broadcasting = self._clients.is_broadcasting(call.connection, group)
        if not config.consume_enable or (is_broadcasting and not config.consume_broadcast_enable):
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the settings of the group {group} let nobody consume"
                + (" in broadcasting mode" if config.consume_enable else ""),
            )

    def _check_queue(self, queue: QueueId) -> None:
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

    def _codes_of(self, call: Call, fields: PullFields) -> frozenset[int] | None:
        """Return the codes of the wanted tags. Raises RefusedError."""
        if fields.sys_flag & _SUBSCRIPTION:
            return tag_filter.wanted_codes(
                Subscription(
                    topic=fields.topic,
                    sub_string=fields.subscription or "",
                    sub_version=fields.sub_version,
                    expression_type=fields.expression_type,
                    class_filter_mode=fields.sys_flag & _CLASS_FILTER != 0,
                )
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
        return tag_filter.wanted_codes(found)
