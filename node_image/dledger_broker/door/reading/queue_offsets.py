"""Offsets of queues, looked up in this member's own queues and log."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeAlias

from dledger_broker.door.calls.call import Call
from dledger_broker.door.calls.failures import answered, answered_after_reads
from dledger_broker.door.reading.proofs import Proofs
from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.errors import (
    NotBuiltError,
    UnitRefusedError,
    UnprovedError,
)
from dledger_broker.queues.feed import QueueFeed
from dledger_broker.queues.reader import MessageReader
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.ext_fields import ExtFields
from dledger_formats.rocketmq.offsets import (
    MaxOffsetFields,
    OffsetAnswerFields,
    QueueFields,
    SearchOffsetFields,
    TimestampAnswerFields,
)

LOOK_UP_S: Final = 2.0
"""How long a request about a queue may take, from its arrival on; clients wait 3 s."""
BUILD_POLL_S: Final = 0.02

NEVER_COMMITTED: Final = "the group never committed an offset of this queue"
YOUNG_SHARE: Final = 0.4
"""The share of the memory that Java's broker counts on for the end of its log."""

Look: TypeAlias = Callable[[QueueId, int, bool], ExtFields]
"""Looks into a queue up to its end, in a thread; the bool says whether the queue has all its
messages.
"""


class QueueOffsets:
    """Offsets of queues (29 to 32), from this member's own queues and log.

    A member that lags would name an end that lies before messages that are acknowledged. So each
    answer counts everything that was acknowledged before its request came.
    """

    def __init__(
        self,
        owner: LogOwner,
        feed: QueueFeed,
        reader: MessageReader,
        proofs: Proofs,
        threads: ThreadPoolExecutor,
        young_bytes: int,
    ) -> None:
        """A queue is young while its first message lies in the last `young_bytes` of the log."""
        self._young_bytes = young_bytes
        self._owner = owner
        self._feed = feed
        self._reader = reader
        self._proofs = proofs
        self._threads = threads
        self._loop = asyncio.get_running_loop()

    def max_offset(self, call: Call) -> None:
        """Answer with the offset that the next message gets. Raises FormatError."""
        fields = call.fields(MaxOffsetFields)

        def answer() -> None:
            end_offset = self._end_offset(fields)
            call.answer(ResponseCode.SUCCESS, OffsetAnswerFields(offset=end_offset))

        self._prove(call, answer)

    def min_offset(self, call: Call) -> None:
        """Answer with the offset of the first message. Raises FormatError."""
        fields, reader = call.fields(QueueFields), self._reader

        def look(queue: QueueId, end: int, has_all: bool) -> ExtFields:
            return OffsetAnswerFields(offset=reader.kept.kept_offset(queue, end, has_all=has_all))

        self._look_up(call, fields, look)

    def first_if_young(self, call: Call, fields: QueueFields) -> None:
        """Answer with 0 if the queue is young and has its first message, else with QUERY_NOT_FOUND.
        The request must have a proof.

        So a new consumer of a new topic also gets what was sent before it began, by Java's rule
        (ConsumerManageProcessor.queryConsumerOffset of 5.3).
        """
        reader, tables = self._reader, self._owner.state.tables

        def look(queue: QueueId, end: int, has_all: bool) -> ExtFields:
            if end and reader.kept.kept_offset(queue, end, has_all=has_all) == 0:
                age_bytes = tables.last_physical_offset - reader.position(queue, 0)
                if age_bytes <= self._young_bytes:
                    return OffsetAnswerFields(offset=0)
            raise RefusedError(ResponseCode.QUERY_NOT_FOUND, NEVER_COMMITTED)

        if tables.topics.has_queue(fields.topic, fields.queue_id):
            self._begin(call, fields, look)
        else:
            call.answer(ResponseCode.QUERY_NOT_FOUND, OffsetAnswerFields(), remark=NEVER_COMMITTED)

    def search(self, call: Call) -> None:
        """Answer with the offset of the first message not older than a time. Raises FormatError.

        An UPPER boundary means the last message that is not younger.
        """
        fields, reader = call.fields(SearchOffsetFields), self._reader
        upper = (fields.boundary_type or "").upper() == "UPPER"

        def look(queue: QueueId, end: int, has_all: bool) -> ExtFields:
            first = reader.kept.kept_offset(queue, end, has_all=has_all)
            wanted_ms = fields.timestamp + int(upper)
            found = reader.first_stored_at(queue, wanted_ms, first, end)
            return OffsetAnswerFields(offset=max(first, found - 1) if upper else found)

        self._look_up(call, fields, look)

    def earliest(self, call: Call) -> None:
        """Answer with the time when the first message was stored. Raises FormatError."""
        fields, reader = call.fields(QueueFields), self._reader

        def look(queue: QueueId, end: int, has_all: bool) -> ExtFields:
            first = reader.kept.kept_offset(queue, end, has_all=has_all)
            timestamp = reader.timestamp(queue, first) if first < end else -1
            return TimestampAnswerFields(timestamp=timestamp)

        self._look_up(call, fields, look)

    def _end_offset(self, fields: QueueFields) -> int:
        state = self._owner.state
        if not state.tables.topics.has_queue(fields.topic, fields.queue_id):
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"there is no queue {fields.queue_id} of {fields.topic[:150]!r}",
            )
        return state.next_offset(fields.topic, fields.queue_id)

    def _prove(self, call: Call, answer: Callable[[], None]) -> None:
        """Answer once the state has all that was acknowledged before the request; `answer` may
        raise.
        """

        def decided(is_proved: bool) -> None:
            if is_proved:
                answered(call, answer)
                return
            remark = "no leader confirmed in time which messages are acknowledged; try again"
            call.answer(ResponseCode.SYSTEM_ERROR, remark=remark)

        self._proofs.ask(call, decided, call.arrived_s + LOOK_UP_S)

    def _look_up(self, call: Call, fields: QueueFields, look: Look) -> None:
        """Look something up in a thread, once there is a proof, and answer."""
        self._prove(call, partial(self._begin, call, fields, look))

    def _begin(self, call: Call, fields: QueueFields, look: Look) -> None:
        self._end_offset(fields)
        call.channel.reads_waiting += 1
        self._loop.create_task(self._look_up_and_answer(call, fields, look))

    async def _look_up_and_answer(self, call: Call, fields: QueueFields, look: Look) -> None:
        with answered_after_reads(call):
            try:
                async with asyncio.timeout_at(call.arrived_s + LOOK_UP_S):
                    found = await self._try(fields, look)
                    while found is None:
                        await asyncio.sleep(BUILD_POLL_S)
                        found = await self._try(fields, look)
            except TimeoutError:
                remark = "the consume queues are being built, or cannot be read in time; try again"
                call.answer(ResponseCode.SYSTEM_ERROR, remark=remark)
            else:
                call.answer(ResponseCode.SUCCESS, found)

    async def _try(self, fields: QueueFields, look: Look) -> ExtFields | None:
        """Look once; return None if the queue lacks units that will come.

        Raises RefusedError, UnreadableError, QueueFilesError, StoreError, IndexError and OSError.
        """
        queue, end_offset = QueueId(fields.topic, fields.queue_id), self._end_offset(fields)
        has_all, created_index = self._feed.has_all, self._owner.created_index(fields.topic)
        rebuilds = self._feed.rebuilds
        try:
            return await self._loop.run_in_executor(self._threads, look, queue, end_offset, has_all)
        except (NotBuiltError, UnprovedError):
            return None
        except UnitRefusedError as error:
            if has_all and created_index == self._owner.created_index(fields.topic):
                self._feed.rebuild(str(error), rebuilds)
            return None


def young_bytes(memory_limit_bytes: int) -> int:
    """Return how far from the end of the log a queue's first message may lie while it is young.

    A limit of 0 means that the member may use the whole memory of its host.
    """
    host_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(YOUNG_SHARE * (memory_limit_bytes or host_bytes))
