"""Messages that a consumer could not process and returns (36), at the leader: they are delivered
again, or become dead letters.

A client whose request fails sends the message to the retry topic of its group by itself, so nothing
is lost.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from dledger_broker.door.between_members.door_frames import Way
from dledger_broker.door.calls.call import Call
from dledger_broker.door.calls.failures import answered_after_reads
from dledger_broker.door.sending import repeats
from dledger_broker.door.sending.awaited_repeats import AwaitedRepeats
from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.leading.record_draft import RecordDraft
from dledger_broker.leading.state_changes import not_committed
from dledger_broker.messages import delays, retries, send_checks
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.queues.reader import MessageReader
from dledger_formats.rocketmq import topic_names
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.message_record import MessageRecord
from dledger_formats.rocketmq.sends import SendBackFields
from dledger_node.embedding import Member
from dledger_node.services.drafts import Outcome


class Returns:
    """Takes the messages that consumers return."""

    def __init__(
        self,
        member: Member,
        owner: LogOwner,
        reader: MessageReader,
        awaited: AwaitedRepeats,
        threads: ThreadPoolExecutor,
        store_host: Callable[[], bytes],
    ) -> None:
        self._member = member
        self._owner = owner
        self._reader = reader
        self._awaited = awaited
        self._threads = threads
        self._store_host = store_host
        self._loop = asyncio.get_running_loop()

    def take(self, call: Call) -> None:
        """Take one message; answer once it is stored again. Raises FormatError, RefusedError."""
        fields = call.fields(SendBackFields)
        if fields.group not in self._owner.state.tables.groups.configs:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"there is no consumer group {fields.group[:150]!r}",
            )
        call.channel.reads_waiting += 1
        self._loop.create_task(self._read_and_store(call, fields))

    async def _read_and_store(self, call: Call, fields: SendBackFields) -> None:
        with answered_after_reads(call):  # the proposal raises nothing, so a refusal is right
            record = await self._loop.run_in_executor(self._threads, self._reader.at, fields.offset)
            call.check_age(self._loop.time())
            self._store(call, fields, record)

    def _store(self, call: Call, fields: SendBackFields, record: MessageRecord) -> None:
        """Propose the message once more. Raises RefusedError and FormatError."""
        owner = self._owner
        config = owner.state.tables.groups.configs.get(fields.group)
        is_applied = record.queue_offset < owner.state.next_offset(record.topic, record.queue_id)
        if config is None or not is_applied or topic_names.is_system(record.topic):
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"there is no message at offset {fields.offset}"
            )
        if config.retry_queue_nums == 0:  # the group wants nothing back
            call.answer(ResponseCode.SUCCESS)
            return
        retry_topic = retries.retry_topic(fields.group, config)
        queues = (owner.topic(retry_topic.topic_name) or retry_topic).write_queue_nums
        topic, again = retries.returned(record, fields, config, self._store_host(), queues)
        records = send_checks.encode([again])
        if len(records[0]) + delays.MARGIN_BYTES > self._member.body_bytes_max:
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message would have {len(records[0])} bytes with the properties of a retry; "
                f"at most {self._member.body_bytes_max} are allowed",
            )
        is_new = owner.topic(topic.topic_name) is None
        changes = [owner.create_topic(topic)] if is_new else []

        def ended(draft: RecordDraft, outcome: Outcome) -> None:
            if outcome is Outcome.REFUSED and is_new:
                owner.forget_topic(changes[0])
            self._answer(call, draft, outcome)

        draft = RecordDraft(changes, records, (again.topic, again.queue_id), ended)
        draft.numbers = repeats.numbers_of(call, 1)
        owner.propose(draft, call.arrived_s)

    def _answer(self, call: Call, draft: RecordDraft, outcome: Outcome) -> None:
        if outcome is Outcome.COMMITTED:
            self._answer_stored(call)
        elif draft.numbers is not None and repeats.is_repeated(draft):
            [index] = self._member.find_numbers(draft.numbers)
            self._await_first_copy(call, index)
        elif (way := repeats.way_of(draft, outcome)) is not None:
            call.turned(way)
        else:
            call.refuse(not_committed())

    def _await_first_copy(self, call: Call, index: int | None) -> None:
        """Answer once the entry of the first copy, which is at `index`, is committed."""

        def ended(is_committed: bool) -> None:
            if is_committed:
                self._answer_stored(call)
            else:
                call.turned(Way.IN_DOUBT)  # the door asks again

        if index is None:
            ended(False)
        else:
            self._awaited.wait(index, call.arrived_s, ended)

    @staticmethod
    def _answer_stored(call: Call) -> None:
        call.note_stored()
        call.answer(ResponseCode.SUCCESS)
