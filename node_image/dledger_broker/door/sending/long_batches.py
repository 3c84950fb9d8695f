"""Batches of so many messages that a thread checks and encodes them, which takes tens of ms.

Meanwhile nothing else of a client's connection to the leader is handled, so its messages keep their
order. A batch that another member has passed on, or that has waited for a leader, holds nothing up:
what its client sends before it has the answer may be stored before the batch.

The thread has one batch at a time. One whose turn comes too late is refused: its client has an
answer before it could be stored, and sends it again.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from dledger_broker.door.between_members.door_numbers import COUNT_MAX
from dledger_broker.door.calls.call import Call
from dledger_broker.door.calls.failures import answered_after_reads
from dledger_broker.messages.send_checks import RefusedError
from dledger_formats.json_objects import FormatError
from dledger_formats.rocketmq import message_batch
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_node.remoting.read_turns import READS_WAITING_MAX

BYTES_MAX: Final = 32 * 1024 * 1024
"""The most bytes of batches that may wait for the thread."""


def is_long(body: bytes) -> bool:
    """Return whether a thread should read a batch. Its messages have no numbers, so they need not
    come between those of other requests.
    """
    try:
        return message_batch.count(body, enough=COUNT_MAX + 1) > COUNT_MAX
    except FormatError:
        return False  # it will be refused with a better reason


class LongBatches:
    """The batches that wait for the thread, and the one that it has."""

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self._thread = thread
        self._turn = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._bytes = 0

    @property
    def is_idle(self) -> bool:
        """Whether no batch is in the hands of the thread, or waits for it."""
        return not self._tasks

    def take(
        self,
        call: Call,
        encode: Callable[[], list[bytearray]],
        propose: Callable[[list[bytearray]], None],
    ) -> None:
        """Let the thread `encode` a batch, then `propose` its records.

        The client is answered with what either of them raises; `propose` must raise nothing once
        it may have proposed records. Raises RefusedError if too much waits for the thread.
        """
        size = len(call.command.body)
        if self._bytes + size > BYTES_MAX:
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"the message is not stored: {self._bytes} bytes of batches wait",
            )
        self._bytes += size
        call.channel.reads_waiting += READS_WAITING_MAX
        task = self._loop.create_task(self._take(call, encode, propose))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take(
        self,
        call: Call,
        encode: Callable[[], list[bytearray]],
        propose: Callable[[list[bytearray]], None],
    ) -> None:
        # The proposal raises nothing, so a refusal is right.
        with answered_after_reads(call, READS_WAITING_MAX):
            try:
                async with self._turn:
                    call.check_age(self._loop.time())
                    records = await self._loop.run_in_executor(self._thread, encode)
                call.check_age(self._loop.time())
                propose(records)
            finally:  # before the channel continues with its next batch
                self._bytes -= len(call.command.body)
