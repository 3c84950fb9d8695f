"""How many waiting requests are served or sent in one turn of the event loop.

Thousands may wait when a leader is elected. If all were served at once, the new leader would send
no heartbeat for longer than its followers wait for one.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from dledger_broker.door.passing_on.waiting import WaitingRequest
from dledger_node.slices import CallSoon

REQUESTS_MAX: Final = 64
"""A send of 1 KiB takes some 30 µs, and each message of a batch 10 µs: it counts as a request."""
BYTES_MAX: Final = 256 << 10
"""A slice ends with the request that exceeds this: the body of one may have 4 MiB."""


class WaitingSlices:
    """Hands out the requests of a queue in slices, one in each turn of the loop."""

    def __init__(
        self,
        go_on: Callable[[], None],
        call_soon: CallSoon | None = None,
    ) -> None:
        """`go_on` handles the next slice. `call_soon` runs a function in the next turn of the loop,
        by default of the loop that runs then.
        """
        self._go_on = go_on
        self._call_soon = call_soon
        self.is_next_due = False
        """Whether the next slice was put off to the next turn."""

    def of(self, queue: deque[WaitingRequest], requests_max: int) -> Iterator[WaitingRequest]:
        """Take requests from the queue, up to `requests_max` or BYTES_MAX.

        Each message of a batch counts as a request. The next turn goes on if any are left.
        """
        count = size = 0
        while queue:
            if count >= requests_max or size >= BYTES_MAX:
                self._put_off()
                return
            waiting = queue.popleft()
            count, size = count + max(1, waiting.count), size + waiting.size
            yield waiting

    def _put_off(self) -> None:
        if self.is_next_due:
            return
        self.is_next_due = True
        (self._call_soon or asyncio.get_running_loop().call_soon)(self._next)

    def _next(self) -> None:
        self.is_next_due = False
        self._go_on()
