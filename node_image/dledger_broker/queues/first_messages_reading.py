"""Reading of the log for the first messages of queues, in a thread of its own.

The thread goes on, one batch at a time, while any queue is wanted. A log that cannot be read now is
tried again later: the member mends it.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.first_messages import UNREADABLE, FirstMessages

RETRY_S: Final = 0.5


class FirstMessagesReading:
    """Reads on for queues whose first message `FirstMessages` does not know yet.

    Call its methods in the event loop's thread.
    """

    def __init__(
        self,
        front: FirstMessages,
        *,
        shown: Callable[[Iterable[QueueId]], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """`shown` receives the queues for which the log was read far enough."""
        self._front = front
        self._shown = shown
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="first-messages")
        self._batch: asyncio.Future[list[QueueId]] | None = None
        self._pause_until_s = 0.0
        self._closed = False

    @property
    def is_idle(self) -> bool:
        """Return whether the log need not be read for any queue."""
        return not self._front.is_anything_wanted

    def tick(self) -> None:
        """Read on, if a queue is wanted."""
        if self._batch is not None or self._closed or not self._front.is_anything_wanted:
            return
        if self._loop.time() >= self._pause_until_s:
            self._batch = self._loop.run_in_executor(self._thread, self._front.read_on)
            self._batch.add_done_callback(self._done)

    async def close(self) -> None:
        """Stop after the batch that is being read."""
        self._closed = True
        if self._batch is not None:
            await asyncio.wait([self._batch])
        self._thread.shutdown(wait=False)

    def _done(self, batch: "asyncio.Future[list[QueueId]]") -> None:
        self._batch = None
        if batch.cancelled():
            return
        error = batch.exception()
        if isinstance(error, UNREADABLE):
            self._pause_until_s = self._loop.time() + RETRY_S
        elif error is not None:
            self._failed(error)
        else:
            if batch.result():
                self._shown(batch.result())
            self.tick()
