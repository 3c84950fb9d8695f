"""Reads in threads: few of one connection at a time, and none while it does not read its answers.

Each read may return a message of 4 MiB, and what a thread has read is sent even if much is still
unsent. So with many reads at once, a connection would exceed the limit on unread answers, and be
cut.
"""

from collections import Counter, deque
from typing import Final

from dledger_node.remoting.connection_views import Reader
from dledger_node.remoting.read_turns import Read, ReadTurns

AT_ONCE: Final = 2
"""Reads of one connection. With what may be unread when they begin (`unsent_bytes_high`), their
answers stay well below `unsent_bytes_max`.
"""


class ThreadTurns:
    """Begins the reads of all connections."""

    def __init__(self, turns: ReadTurns) -> None:
        self._turns = turns
        self._under_way: Counter[Reader] = Counter()
        """Reads that have begun, or begin with the connection's next turn."""
        self._waiting: dict[Reader, deque[Read]] = {}

    def begin(self, reader: Reader, read: Read) -> None:
        """Begin a read now, in its connection's turn, or later. `done` must follow each read."""
        if self._under_way[reader] >= AT_ONCE:
            self._waiting.setdefault(reader, deque()).append(read)
            self._turns.hold(reader)
            return
        self._under_way[reader] += 1
        read()

    def done(self, reader: Reader) -> None:
        """Record that a read is answered, and let the next one begin in its turn."""
        waiting = self._waiting.get(reader)
        if waiting is None:
            count = self._under_way.pop(reader, 0)
            if count > 1:
                self._under_way[reader] = count - 1
            return
        read = waiting.popleft()
        if not waiting:
            del self._waiting[reader]
        self._turns.submit(reader, read)
        self._turns.release(reader)

    def forget(self, reader: Reader) -> None:
        """Drop the reads of a connection that is closed, except for those in threads."""
        self._waiting.pop(reader, None)
        self._under_way.pop(reader, None)
