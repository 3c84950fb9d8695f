"""Sends (codes 10, 310 and 320): from a request to an entry, and back to its answer.

A send is acknowledged once a quorum holds it. A member that does not lead answers with code 14,
after which every producer tries again. While no leader is known, or a new one is not ready, sends
wait for it.
"""

import asyncio
import random
from collections import deque
from typing import Final

import msgspec

from dledger_broker.door.call import Call
from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.leading.record_draft import RecordDraft
from dledger_broker.messages import delays, retries, send_checks
from dledger_broker.messages.send_checks import Hosts, RefusedError
from dledger_broker.names import routes
from dledger_broker.settings import BrokerSettings
from dledger_formats.log.disk import ENTRY_HEADER_SIZE
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.rocketmq import topic_names
from dledger_formats.rocketmq.codes import Permission, RequestCode, ResponseCode
from dledger_formats.rocketmq.message_id import MessageId
from dledger_formats.rocketmq.sends import (
    LongSendMessageFields,
    SendAnswerFields,
    SendMessageFields,
)
from dledger_formats.rocketmq.topics import TopicConfig
from dledger_node.embedding import Member
from dledger_node.services.drafts import Outcome

HOLD_S: Final = 2.0
HELD_MAX: Final = 10_000
HELD_BYTES_MAX: Final = 64 << 20
REGION: Final = "DefaultRegion"
_WRITE: Final = int(Permission.WRITE)
_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
_LONG: Final = int(RequestCode.SEND_MESSAGE)
_OF_GROUPS: Final = (
    (topic_names.RETRY_PREFIX, retries.retry_topic),
    (topic_names.DEAD_LETTER_PREFIX, retries.dead_letter_topic),
)
_OVERLOAD: Final = (DLedgerResponseCode.LEADER_PENDING_FULL,)


class SendDraft(RecordDraft):
    """The records of one send."""

    __slots__ = ("call", "created", "queue_id", "unique_key")

    call: Call
    queue_id: int
    """The queue that the client is told; a delayed message waits in another one."""
    unique_key: str | None
    created: str | None
    """The topic that the draft creates."""


class Sends:
    """Takes the sends of all connections."""

    def __init__(
        self, settings: BrokerSettings, member: Member, owner: LogOwner, store_host: bytes
    ) -> None:
        self._settings = settings
        self._member = member
        self._owner = owner
        self._store_host = store_host
        self._loop = asyncio.get_running_loop()
        self._held: deque[tuple[float, Call]] = deque()
        self._held_bytes = 0
        self._answers: dict[object, list[bytes]] = {}

    def send(self, call: Call) -> None:
        """Take one send. Raises FormatError and RefusedError."""
        if self._held:
            self.go_on()  # the sends that came before this one keep their places
        if self._held or self._waits:
            self._hold(call)
        else:
            self._take(call)

    def go_on(self) -> None:
        """Take the sends that waited for a leader, as far as there is one, or their time is up."""
        now_s = self._loop.time()
        while self._held:
            deadline_s, call = self._held[0]
            waits = self._waits
            if waits and now_s < deadline_s:
                return
            self._held.popleft()
            self._held_bytes -= len(call.command.body)
            try:
                if waits:
                    raise _not_master("no leader was elected in time")
                self._take(call)
            except RefusedError as error:
                call.refuse(error)
            except ValueError as error:
                call.answer(ResponseCode.SYSTEM_ERROR, remark=str(error))

    def close(self) -> None:
        """Refuse the sends that wait for a leader."""
        while self._held:
            self._held.popleft()[1].refuse(_not_master("this member stops"))

    # -- from a request to a draft -----------------------------------------------------------------

    @property
    def _waits(self) -> bool:
        """Whether no leader is known, or this member leads and is not ready."""
        member = self._member
        if member.leads:
            return not self._owner.is_ready()
        return member.leader_id is None

    def _take(self, call: Call) -> None:
        """Propose a send, or refuse it. Raises FormatError and RefusedError."""
        member = self._member
        if not member.leads:
            raise _not_master(f"{member.self_id} does not lead; {member.leader_id} does")
        self._propose(call)

    def _hold(self, call: Call) -> None:
        self._held_bytes += len(call.command.body)
        if len(self._held) >= HELD_MAX or self._held_bytes > HELD_BYTES_MAX:
            self._held_bytes -= len(call.command.body)
            raise _not_master("no leader is known, and too many sends wait for one")
        self._held.append((self._loop.time() + HOLD_S, call))

    def _propose(self, call: Call) -> None:
        command = call.command
        kind = LongSendMessageFields if command.code == _LONG else SendMessageFields
        fields = call.fields(kind)
        send_checks.check_topic(fields.topic)
        is_dead = self._is_dead(fields)
        if is_dead:
            group = fields.topic.removeprefix(topic_names.RETRY_PREFIX)
            topic = retries.dead_letter_topic(group).topic_name
            fields = msgspec.structs.replace(fields, topic=topic, queue_id=0)
        config = self._owner.topic(fields.topic)
        created = None
        if config is None:
            config = created = self._new_topic(fields)
        queue_id = _queue_of(config, fields.queue_id)
        is_batch = command.code == _BATCH or fields.batch is True
        messages = send_checks.messages_of(
            fields,
            queue_id,
            command.body,
            Hosts(call.line.born_host, self._store_host),
            is_batch=is_batch,
        )
        place = fields.topic, queue_id
        level = 0 if is_batch or is_dead else delays.level_of(messages[0].properties)
        if level:
            messages = [delays.waiting(messages[0], level)]
            place = messages[0].topic, messages[0].queue_id
        records = send_checks.encode(messages)
        longest = max(map(len, records)) + (delays.MARGIN_BYTES if level else 0)
        if longest > self._member.body_bytes_max:
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message has {longest} bytes with its properties; at most "
                f"{self._member.body_bytes_max} are allowed",
            )
        changes = () if created is None else (self._owner.create_topic(created),)
        draft = SendDraft(changes, records, place, self._ended)
        draft.call, draft.unique_key = call, send_checks.unique_key(fields)
        draft.queue_id = queue_id
        draft.created = None if created is None else created.topic_name
        self._owner.propose(draft)

    def _is_dead(self, fields: SendMessageFields) -> bool:
        """Tell whether a consumer sends a message again that its group has had too often."""
        if not fields.topic.startswith(topic_names.RETRY_PREFIX):
            return False
        group = fields.topic.removeprefix(topic_names.RETRY_PREFIX)
        config = self._owner.state.tables.groups.configs.get(group)
        times = fields.reconsume_times or 0
        return times > retries.times_max(config, fields.max_reconsume_times)

    def _new_topic(self, fields: SendMessageFields) -> TopicConfig:
        for prefix, topic_of in _OF_GROUPS:
            if fields.topic.startswith(prefix):
                return topic_of(fields.topic.removeprefix(prefix))
        template = routes.config_of(self._settings, fields.default_topic, None)
        if template is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"the topic {fields.topic} does not exist"
            )
        queues = max(1, min(fields.default_topic_queue_nums, template.write_queue_nums))
        return TopicConfig(
            topic_name=fields.topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=int(Permission.READ | Permission.WRITE),
        )

    # -- from a draft to an answer -----------------------------------------------------------------

    def _ended(self, draft: RecordDraft, outcome: Outcome) -> None:
        assert isinstance(draft, SendDraft)
        if outcome is Outcome.COMMITTED:
            answer = self._success(draft)
        else:
            if outcome is Outcome.REFUSED and draft.created is not None:
                self._owner.forget_topic(draft.created)
            error = _error_of(draft, outcome)
            answer = draft.call.encoded(error.code, remark=error.remark)
        self._collect(draft.call, answer)

    def _collect(self, call: Call, answer: bytes) -> None:
        """Send all answers of this turn of the loop with one write for each connection."""
        if not self._answers:
            self._loop.call_soon(self._flush)
        self._answers.setdefault(call.line, []).append(answer)

    def _flush(self) -> None:
        answers, self._answers = self._answers, {}
        for line, frames in answers.items():
            line.send(b"".join(frames))  # type: ignore[attr-defined]

    def _success(self, draft: SendDraft) -> bytes:
        host, positions = self._store_host, draft.positions
        ids = [str(MessageId(host, pos + ENTRY_HEADER_SIZE)) for pos in positions]
        values = draft.call.counters.values
        values["messages_stored"] += len(positions)
        values["bytes_stored"] += sum(map(len, draft.bodies[draft.changes :]))
        fields = SendAnswerFields(
            msg_id=",".join(ids),
            queue_id=draft.queue_id,
            queue_offset=draft.first_offset,
            transaction_id=draft.unique_key,
            region=REGION,
            trace_on=True,
        )
        return draft.call.encoded(ResponseCode.SUCCESS, fields)


def _queue_of(config: TopicConfig, queue_id: int) -> int:
    """Return the queue that a message goes to. Raises RefusedError."""
    if not config.perm & _WRITE:
        raise RefusedError(
            ResponseCode.NO_PERMISSION, f"the topic {config.topic_name} cannot be written to"
        )
    queues = max(config.read_queue_nums, config.write_queue_nums)
    if queue_id >= queues:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"{config.topic_name} has no queue {queue_id}; it has {queues}",
        )
    return queue_id if queue_id >= 0 else random.randrange(config.write_queue_nums)


def _error_of(draft: SendDraft, outcome: Outcome) -> RefusedError:
    if outcome is Outcome.UNKNOWN:
        return RefusedError(
            ResponseCode.SYSTEM_ERROR, "no quorum answered in time; the message may be stored"
        )
    reason = draft.refusal
    code = ResponseCode.SYSTEM_BUSY if reason in _OVERLOAD else ResponseCode.SERVICE_NOT_AVAILABLE
    return RefusedError(code, f"the message is not stored: {reason.name if reason else 'unknown'}")


def _not_master(remark: str) -> RefusedError:
    return RefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
