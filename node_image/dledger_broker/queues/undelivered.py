"""Delayed messages that are not delivered yet, which the log must keep."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.errors import READ_ERRORS, UnitRefusedError
from dledger_broker.queues.feed import QueueFeed
from dledger_broker.queues.reader import MessageReader
from dledger_broker.state.broker_state import BrokerState
from dledger_formats.rocketmq import delay_levels, topic_names
from dledger_node.embedding import Member

LOOK_S: Final = 2.0


class Waiting(NamedTuple):
    """The messages of one level that wait."""

    queue: QueueId
    first: int
    end: int


class UndeliveredMessages:
    """Finds the place in the log of the first delayed message that is not delivered."""

    def __init__(
        self,
        member: Member,
        feed: QueueFeed,
        reader: MessageReader,
        threads: ThreadPoolExecutor,
    ) -> None:
        self.covered_index = -1
        """Index up to which no entry is a delayed message that waits; it may lag."""
        self._member = member
        self._feed = feed
        self._reader = reader
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._next_s = 0.0
        self._busy = False

    def tick(self) -> None:
        """Look again if it is time."""
        if not self._busy and self._loop.time() >= self._next_s:
            self._busy = True
            self._loop.create_task(self._look())

    async def _look(self) -> None:
        applied_index, has_all = self._member.applied_index, self._feed.has_all
        rebuilds = self._feed.rebuilds
        state = self._member.machine(BrokerState)
        waiting = [
            Waiting(queue, first, end)
            for level in range(1, delay_levels.LEVEL_MAX + 1)
            for queue in [QueueId(topic_names.SCHEDULE_TOPIC, level - 1)]
            if (first := state.delay_position(level)) < (end := state.next_offset(*queue))
        ]
        try:
            first_index = await self._loop.run_in_executor(
                self._threads, self._first_index, waiting, has_all
            )
        except UnitRefusedError as error:
            if has_all:
                self._feed.rebuild(str(error), rebuilds)
        except READ_ERRORS:
            pass  # the queues are not complete; the older index holds
        else:
            self.covered_index = min(applied_index, first_index - 1)
        finally:
            self._next_s = self._loop.time() + LOOK_S
            self._busy = False

    def _first_index(self, waiting: Sequence[Waiting], has_all: bool) -> int:
        """Return the index of the first message that waits, in a thread."""
        found = [
            self._reader.index_of(each.queue, each.first, each.end, has_all=has_all)
            for each in waiting
        ]
        known = [index for index in found if index is not None]
        return min(known, default=1 << 62)
