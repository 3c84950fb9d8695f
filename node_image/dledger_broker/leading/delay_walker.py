"""Delivers delayed messages that are due, while this member leads.

A delivered message names the delayed one that it was, and the state takes the progress from there:
the delivery and the progress are one entry. A leader begins with the progress of the state, once it
has applied every entry before its term. It proposes a message again only if the entry was refused,
so each is in the log once.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from dledger_broker.leading.log_owner import NO_TERM, LogOwner
from dledger_broker.leading.record_draft import RecordDraft
from dledger_broker.messages import delays, send_checks
from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.errors import READ_ERRORS, UnitRefusedError
from dledger_broker.queues.feed import QueueFeed
from dledger_broker.queues.reader import Due, MessageReader
from dledger_formats.rocketmq import delay_levels, topic_names
from dledger_formats.rocketmq.message_record import MessageRecord
from dledger_node.services.drafts import Outcome

logger = logging.getLogger(__name__)

MESSAGES_MAX: Final = 64
BYTES_MAX: Final = 1024 * 1024
"""The most bytes of a level that are proposed together; a single message may be longer."""
RETRY_S: Final = 0.5


@dataclass(slots=True)
class Level:
    """The progress of the delivery of one level, in the term of this leader."""

    queue: QueueId
    proposed: int = 0
    """The offset after the last message that is proposed, and not refused."""
    next_ms: int = 0
    """The time of the wall clock before which nothing is due."""
    seen_end: int = 0
    """The messages below this offset were all stored when this leader saw the first of them."""
    waited_ms: int = 0
    """The time from which all of those are due."""
    busy: bool = False
    """Whether the level's messages are being read, or are on their way."""
    pause_until_s: float = 0.0


class DelayWalker:
    """Looks for messages that are due."""

    def __init__(
        self,
        owner: LogOwner,
        feed: QueueFeed,
        reader: MessageReader,
        threads: ThreadPoolExecutor,
        store_host: Callable[[], bytes],
    ) -> None:
        self._owner = owner
        self._feed = feed
        self._reader = reader
        self._threads = threads
        self._store_host = store_host
        self._loop = asyncio.get_running_loop()
        self._term = NO_TERM
        self._levels: list[Level] = []

    def tick(self) -> None:
        """Deliver what is due. Call it on the leader and on the others alike."""
        if not self._owner.is_proven:
            return
        if self._term != self._owner.term:
            self._term = self._owner.term
            self._levels = [
                Level(QueueId(topic_names.SCHEDULE_TOPIC, number))
                for number in range(delay_levels.LEVEL_MAX)
            ]
        now_ms, now_s = self._owner.wall_ms(), self._loop.time()
        for number, level in enumerate(self._levels, 1):
            if level.busy or now_s < level.pause_until_s:
                continue
            waiting = self._waiting(number, level)
            if not waiting:
                continue
            _limit(level, waiting, now_ms, delay_levels.DELAYS_MS[number - 1])
            if now_ms < level.next_ms:
                continue
            level.busy = True
            has_all = self._feed.has_all
            self._loop.create_task(self._deliver(level, waiting, now_ms, has_all=has_all))

    def due_in_s(self) -> float:
        """Return the time until the next message is due, as far as it is known; it may be past."""
        if not self._owner.is_proven or self._term != self._owner.term:
            return math.inf
        now_ms, now_s = self._owner.wall_ms(), self._loop.time()
        if any(level.busy for level in self._levels):
            return 0.0  # when the next message of such a level is due will soon be known
        return min(
            (
                max((level.next_ms - now_ms) / 1000, level.pause_until_s - now_s)
                for number, level in enumerate(self._levels, 1)
                if self._waiting(number, level)
            ),
            default=math.inf,
        )

    def _waiting(self, number: int, level: Level) -> range:
        """Return the offsets of a level's messages that wait; none while some are proposed."""
        position = self._owner.state.delay_position(number)
        if position < level.proposed:
            return range(0)
        return range(position, self._owner.state.next_offset(*level.queue))

    async def _deliver(self, level: Level, waiting: range, now_ms: int, *, has_all: bool) -> None:
        """Read the messages of a level that are due, and propose them; pause after any error."""
        rebuilds = self._feed.rebuilds
        try:
            await self._read_and_propose(level, waiting, now_ms, has_all=has_all)
        except Exception as error:  # whatever it is, the level is looked at again
            level.pause_until_s = self._loop.time() + RETRY_S
            level.busy = False
            if isinstance(error, UnitRefusedError):
                if has_all:
                    self._feed.rebuild(str(error), rebuilds)
            elif not isinstance(error, READ_ERRORS):
                logger.exception("delayed messages of %s are not delivered now", level.queue)

    async def _read_and_propose(
        self, level: Level, waiting: range, now_ms: int, *, has_all: bool
    ) -> None:
        term = self._term
        waited_end = level.seen_end if now_ms >= level.waited_ms else 0
        due = await self._loop.run_in_executor(
            self._threads, self._read, level.queue, waiting, now_ms, has_all, waited_end
        )
        if term != self._owner.term or not self._owner.is_proven:
            level.busy = False
            return
        level.next_ms = due.next_ms
        if due.records:
            self._propose(level, due.records)
        else:
            level.busy = False
            if not due.next_ms:  # the queue lacks its units, or the log its messages
                level.pause_until_s = self._loop.time() + RETRY_S

    def _read(
        self, queue: QueueId, waiting: range, now_ms: int, has_all: bool, waited_end: int
    ) -> Due:
        return self._reader.due(
            queue, waiting.start, waiting.stop, now_ms, has_all=has_all,
            messages_max=MESSAGES_MAX, bytes_max=BYTES_MAX, waited_end=waited_end,
        )  # fmt: skip

    def _propose(self, level: Level, records: list[MessageRecord]) -> None:
        """Propose messages. Whatever raises here does so before they can be written."""
        topics = self._owner.state.tables.topics
        messages = []
        for record in records:
            message = delays.delivered(record)
            if not topics.has_queue(message.topic, message.queue_id):
                message = delays.undelivered(message)
            messages.append(send_checks.stored_by(message, self._store_host()))
        before = level.proposed

        def ended(_: RecordDraft, outcome: Outcome) -> None:
            level.busy = False
            if outcome is Outcome.REFUSED:
                level.proposed = before
                level.pause_until_s = self._loop.time() + RETRY_S

        places = [(message.topic, message.queue_id) for message in messages]
        draft = RecordDraft((), send_checks.encode(messages), places[0], ended, places)
        level.proposed = records[-1].queue_offset + 1
        self._owner.propose(draft)


def _limit(level: Level, waiting: range, now_ms: int, delay_ms: int) -> None:
    """Make what waits due after the delay at the latest, even if the clock was set back."""
    due_ms = now_ms + delay_ms
    if waiting.start >= level.seen_end:
        level.seen_end, level.waited_ms = waiting.stop, due_ms
    level.waited_ms = min(level.waited_ms, due_ms)
    level.next_ms = min(level.next_ms, level.waited_ms)
