"""Share the event loop's time among the reads of all connections.

One read takes up to 2 ms of the loop, and a client can ask for thousands at once. Without a bound
they would hold up heartbeats and appends until the group elects another leader. So reads get a
slice of each turn of the loop; the others wait, in a queue for each connection, and the connections
take turns. A connection whose queue is full, or that does not read its answers, is not served.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from dledger_node.remoting.connection_views import Reader
from dledger_node.remoting.turn_time import TurnTime

READS_WAITING_MAX: Final = 8
"""Reads of one connection that may wait. Its further requests are put off."""
SLICE_S: Final = 0.001
"""Time for the reads of one turn, which begins no further read after it."""

Read: TypeAlias = Callable[[], None]
"""Reads entries and sends the answer."""


class ReadTurns:
    """Does the reads of all connections, a bounded time in each turn of the loop."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], Any],
        now_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`call_soon` runs a function in the next turn of the loop."""
        self._call_soon = call_soon
        self._now_s = now_s
        self._time = TurnTime(SLICE_S)
        self._turn_is_due = False
        self._waiting: dict[Reader, deque[Read]] = {}
        """The reads of each connection."""
        self._ready: dict[Reader, None] = {}
        """The connections with reads, in the order of their turns. One that does not read its
        answers is removed at its turn, until `resume`.
        """
        self._paused: set[Reader] = set()
        """The connections whose last read continues in a thread; their other reads wait for it."""
        self._closed = self._is_reading = False
        self.when_forgotten: list[Callable[[Reader], None]] = []
        """Called with each closed connection, so that other modules can drop its reads too."""

    def submit(self, reader: Reader, read: Read) -> None:
        """Do a read in this turn if there is time left and no other read waits, else later.

        A read may submit the next part of its work.
        """
        if self._closed:
            return
        reader.reads_waiting += 1
        self._schedule()
        has_time = self._time.left_s > 0 and not self._is_reading and not self._ready
        is_next = reader not in self._waiting and reader not in self._paused
        if has_time and reader.unread_since_s is None and is_next:
            self._do(reader, read)
            return
        self._waiting.setdefault(reader, deque()).append(read)
        self._make_ready(reader)

    def pause(self, reader: Reader) -> None:
        """Make the reader's other reads wait for the one that continues in a thread.

        Answers keep the order of the requests. `go_on` must follow.
        """
        self._paused.add(reader)
        self._ready.pop(reader, None)

    def go_on(self, reader: Reader, read: Read) -> None:
        """Finish the read for which the reader's other reads wait.

        `read` runs now, since its bytes are in memory, and uses time of this turn's slice. If the
        reader does not read its answers, `read` runs once it does.
        """
        if reader not in self._paused:
            return  # the connection is closed
        self._paused.remove(reader)
        reader.reads_waiting += 1
        if reader.unread_since_s is None:
            self._schedule()
            self._do(reader, read)
        else:
            self._waiting.setdefault(reader, deque()).appendleft(read)
        if reader in self._waiting:
            self._make_ready(reader)

    def hold(self, reader: Reader) -> None:
        """Count a read that waits for a thread or for a proof; `release` must follow."""
        reader.reads_waiting += 1

    def release(self, reader: Reader) -> None:
        """Count a read as answered."""
        reader.reads_waiting -= 1
        if reader.reads_waiting == READS_WAITING_MAX - 1:
            reader.go_on()

    def resume(self, reader: Reader) -> None:
        """Serve a connection again, since it reads its answers."""
        if reader in self._waiting and reader not in self._paused:
            self._ready[reader] = None
            self._schedule()

    def forget(self, reader: Reader) -> None:
        """Drop the reads of a connection that is closed."""
        self._waiting.pop(reader, None)
        self._ready.pop(reader, None)
        self._paused.discard(reader)
        for forget in self.when_forgotten:
            forget(reader)

    def close(self) -> None:
        """Drop all reads, and every later one: the connections are about to be closed."""
        self._closed = True
        self._waiting.clear()
        self._ready.clear()
        self._paused.clear()

    def _make_ready(self, reader: Reader) -> None:
        """Give a connection with reads its turn, unless it has to wait."""
        if reader.unread_since_s is None and reader not in self._paused:
            self._ready[reader] = None
            self._schedule()

    def _schedule(self) -> None:
        if not self._turn_is_due:
            self._turn_is_due = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        """Serve reads until the turn's time is used up, rotating through the connections."""
        self._turn_is_due = False
        self._time.callback_begins()
        while self._ready and self._time.left_s > 0:
            reader = next(iter(self._ready))
            del self._ready[reader]
            if reader.unread_since_s is not None:
                continue
            reads = self._waiting[reader]
            read = reads.popleft()
            if reads:
                self._ready[reader] = None
            else:
                del self._waiting[reader]
            self._schedule()
            self._do(reader, read)
        self._time.callback_ends()
        if self._ready:
            self._schedule()

    def _do(self, reader: Reader, read: Read) -> None:
        began_s, self._is_reading = self._now_s(), True
        try:
            read()
        finally:
            self._is_reading = False
            self._time.spend(self._now_s() - began_s)
            self.release(reader)
