"""Sends (codes 10, 310 and 320), at the leader: from a request to an entry, and to its answer.

A send is acknowledged once a quorum holds it. One that a door has numbered is written unless the
log has it under that number; then it is answered with the place that it has.
"""

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import msgspec

from dledger_broker.door.calls.call import Call, Channel
from dledger_broker.door.sending import long_batches, repeats
from dledger_broker.door.sending.awaited_repeats import AwaitedRepeats
from dledger_broker.door.sending.long_batches import LongBatches
from dledger_broker.door.sending.repeated_sends import RepeatedSends
from dledger_broker.door.sending.send_draft import SendDraft
from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.leading.record_draft import Place, RecordDraft
from dledger_broker.messages import delays, retries, send_checks
from dledger_broker.messages.send_checks import Hosts, RefusedError
from dledger_broker.metrics import BrokerCounters
from dledger_broker.registration import routes
from dledger_broker.settings import BrokerSettings
from dledger_formats.log.disk import ENTRY_HEADER_SIZE
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.rocketmq import message_id, topic_names
from dledger_formats.rocketmq.codes import Permission, RequestCode, ResponseCode
from dledger_formats.rocketmq.sends import (
    LongSendMessageFields,
    SendAnswerFields,
    SendMessageFields,
)
from dledger_formats.rocketmq.topics import TopicConfig
from dledger_node.embedding import Member
from dledger_node.services.drafts import Outcome

REGION: Final = "DefaultRegion"
_WRITE: Final = int(Permission.WRITE)
_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
_LONG: Final = int(RequestCode.SEND_MESSAGE)
_OF_GROUPS: Final = (
    (topic_names.RETRY_PREFIX, retries.retry_topic),
    (topic_names.DEAD_LETTER_PREFIX, retries.dead_letter_topic),
)
_OVERLOAD: Final = (DLedgerResponseCode.LEADER_PENDING_FULL,)


class Sends:
    """Takes the sends of all connections."""

    def __init__(
        self,
        settings: BrokerSettings,
        member: Member,
        owner: LogOwner,
        awaited: AwaitedRepeats,
        threads: ThreadPoolExecutor,
        batch_thread: ThreadPoolExecutor,
        store_host: Callable[[], bytes],
    ) -> None:
        self._settings = settings
        self._member = member
        self._owner = owner
        self._store_host = store_host
        self._loop = asyncio.get_running_loop()
        self._answers: dict[Channel, list[bytes]] = {}
        self._long_batches = LongBatches(batch_thread)
        self._repeated = RepeatedSends(
            member, owner, awaited, threads, ended=self._ended, stored=self._answer_stored
        )

    @property
    def is_idle(self) -> bool:
        """Whether no send is in the hands of a thread, and every answer is written."""
        return self._repeated.is_idle and not self._answers and self._long_batches.is_idle

    # -- from a request to a draft -----------------------------------------------------------------

    def send(self, call: Call) -> None:
        """Take one send. Raises FormatError and RefusedError."""
        command = call.command
        kind = LongSendMessageFields if command.code == _LONG else SendMessageFields
        fields = call.fields(kind)
        send_checks.check_topic(fields.topic)
        is_dead = self._is_dead(fields)
        if is_dead:
            group = fields.topic.removeprefix(topic_names.RETRY_PREFIX)
            topic = retries.dead_letter_topic(group).topic_name
            fields = msgspec.structs.replace(fields, topic=topic, queue_id=0)
        config, created = self._config(fields)
        queue_id = _queue_of(config, fields.queue_id)
        hosts = Hosts(call.channel.born_host, self._store_host())
        is_batch = command.code == _BATCH or fields.batch is True
        if is_batch and long_batches.is_long(command.body):
            self._long_batches.take(
                call,
                partial(send_checks.records_of_batch, fields, queue_id, command.body, hosts),
                partial(self._propose_batch, call, fields, queue_id),
            )
            return
        messages = send_checks.messages_of(fields, queue_id, command.body, hosts, is_batch=is_batch)
        place = fields.topic, queue_id
        level = 0 if is_batch or is_dead else delays.level_of(messages[0].properties)
        if level:
            messages = [delays.waiting(messages[0], level)]
            place = messages[0].topic, messages[0].queue_id
        self._propose(call, fields, queue_id, place, send_checks.encode(messages), created)

    def _propose_batch(
        self, call: Call, fields: SendMessageFields, queue_id: int, records: list[bytearray]
    ) -> None:
        """Propose a batch that a thread has encoded. Raises FormatError and RefusedError."""
        config, created = self._config(fields)  # again: it may have changed meanwhile
        place = fields.topic, _queue_of(config, queue_id)
        self._propose(call, fields, queue_id, place, records, created)

    def _propose(
        self,
        call: Call,
        fields: SendMessageFields,
        queue_id: int,
        place: Place,
        records: list[bytearray],
        created: TopicConfig | None,
    ) -> None:
        """Propose records for a place, which differs from the message's if that is delayed.

        Raises FormatError and RefusedError.
        """
        is_delayed = place != (fields.topic, queue_id)
        entries, entries_max = len(records), self._member.drafts.entries_max
        if created is not None:
            entries += 1
        if entries > entries_max:
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the batch needs {entries} entries of the log; at most {entries_max} may wait",
            )
        longest = max(map(len, records)) + (delays.MARGIN_BYTES if is_delayed else 0)
        if longest > self._member.body_bytes_max:
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message has {longest} bytes with its properties; at most "
                f"{self._member.body_bytes_max} are allowed",
            )
        changes = () if created is None else (self._owner.create_topic(created),)
        draft = SendDraft(changes, records, place, self._ended)
        draft.call, draft.unique_key = call, send_checks.unique_key(fields)
        draft.queue_id, draft.repeats = queue_id, None
        draft.numbers = repeats.numbers_of(call, len(records))
        draft.created = created
        self._owner.propose(draft, call.arrived_s)

    def _config(self, fields: SendMessageFields) -> tuple[TopicConfig, TopicConfig | None]:
        """Return the settings of a send's topic, and those that must be written first, if it is
        new. Raises RefusedError.
        """
        config = self._owner.topic(fields.topic)
        if config is not None:
            return config, None
        new = self._new_topic(fields)
        return new, new

    def _is_dead(self, fields: SendMessageFields) -> bool:
        """Return whether a consumer resends a message that its group has received too often."""
        if not fields.topic.startswith(topic_names.RETRY_PREFIX):
            return False
        group = fields.topic.removeprefix(topic_names.RETRY_PREFIX)
        groups = self._owner.state.tables.groups
        times_max = retries.times_max(groups.configs.get(group), fields.max_reconsume_times)
        times, is_ordered = fields.reconsume_times or 0, groups.has_locks(group)
        return retries.is_sent_too_often(times, times_max, is_ordered=is_ordered)

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
            if draft.repeats is not None:
                self._repeated.answer(draft, draft.repeats)
            else:
                self._answer_stored(draft)
            return
        if outcome is Outcome.REFUSED and draft.created is not None:
            change = draft.bodies[0]
            assert isinstance(change, bytearray)
            self._owner.forget_topic(change)
        if draft.numbers is not None and repeats.is_repeated(draft):
            self._repeated.answer(draft, draft.repeats or draft.numbers)
        elif (way := repeats.way_of(draft, outcome)) is not None:
            draft.call.turned(way)
        else:
            self._collect(draft.call, draft.call.encoded_refusal(_refusal(draft)))

    def _answer_stored(self, draft: SendDraft) -> None:
        draft.call.note_stored()
        self._collect(draft.call, self._success(draft))

    def _collect(self, call: Call, answer: bytes) -> None:
        """Send all answers of this turn of the loop with one write for each connection."""
        if not self._answers:
            self._loop.call_soon(self._flush, call.counters)
        self._answers.setdefault(call.channel, []).append(answer)

    def _flush(self, counters: BrokerCounters) -> None:
        answers, self._answers = self._answers, {}
        for channel, frames in answers.items():
            channel.send(b"".join(frames))
        counters.sends.answered(self._loop.time())

    def _success(self, draft: SendDraft) -> bytes:
        positions, call, counters = draft.positions, draft.call, draft.call.counters
        offsets = (position + ENTRY_HEADER_SIZE for position in positions)
        counters.values["messages_stored"] += len(positions)
        counters.values["bytes_stored"] += sum(map(len, draft.bodies[draft.changes :]))
        if not call.is_passed_on:  # else its client's member counts its time
            counters.sends.arrivals_s.append(call.arrived_s)
        fields = SendAnswerFields(
            msg_id=",".join(message_id.texts(self._store_host(), offsets)),
            queue_id=draft.queue_id,
            queue_offset=draft.first_offset,
            transaction_id=draft.unique_key,
            region=REGION,
            trace_on=True,
        )
        return call.encoded(ResponseCode.SUCCESS, fields)


def _queue_of(config: TopicConfig, queue_id: int) -> int:
    """Return the queue that a message goes to. Raises RefusedError."""
    if not config.perm & _WRITE:
        raise RefusedError(
            ResponseCode.NO_PERMISSION, f"the topic {config.topic_name} cannot be written to"
        )
    if queue_id >= (queues := max(config.read_queue_nums, config.write_queue_nums)):
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"{config.topic_name} has no queue {queue_id}; it has {queues}",
        )
    return queue_id if queue_id >= 0 else random.randrange(config.write_queue_nums)


def _refusal(draft: SendDraft) -> RefusedError:
    reason = draft.refusal
    code = ResponseCode.SYSTEM_BUSY if reason in _OVERLOAD else ResponseCode.SERVICE_NOT_AVAILABLE
    return RefusedError(code, f"the message is not stored: {reason.name if reason else 'unknown'}")
