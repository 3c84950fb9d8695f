"""Reads of what the page cache lacks, in a few threads, so that the event loop never waits."""

import asyncio
import itertools
import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple, TypeVar

from dledger_node.remoting.connection_views import Reader
from dledger_node.remoting.read_turns import ReadTurns

DISK_READS_MAX: Final = 2
"""Concurrent reads of the disk, each in a thread. The bytes of an answer are in memory twice."""

ReadT = TypeVar("ReadT")


class _Waiting(NamedTuple):
    """A read that waits for a thread."""

    begin: Callable[[], None]
    refuse: Callable[[], None]


class DiskReads:
    """Reads the disk for clients. The health of the volume watches the reads under way."""

    what: Final = "a read for a client"

    def __init__(self, turns: ReadTurns, begin_turn: Callable[[], None] = lambda: None) -> None:
        """`turns` counts the reads for which each connection waits, and so bounds them.
        `begin_turn` is called before the work of a read that has ended.
        """
        self._turns = turns
        self._begin_turn = begin_turn
        turns.when_forgotten.append(self._forget)
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(DISK_READS_MAX, thread_name_prefix="reads")
        self._waiting: dict[Reader, deque[_Waiting]] = {}
        """Reads that wait for a thread, in the order of the readers' turns; `ReadTurns` bounds how
        many one connection has.
        """
        self._under_way: dict[object, float] = {}
        """When each read that a thread runs now began, the oldest first."""

    def read(
        self,
        reader: Reader,
        read: Callable[[], ReadT],
        ended: Callable[["asyncio.Future[ReadT]"], None],
        refuse: Callable[[], None],
    ) -> None:
        """Call `read` in a thread, and `ended` in the event loop; or `refuse` if the member stops
        first.
        """
        self._turns.hold(reader)
        waiting = _Waiting(partial(self._begin, reader, read, ended), refuse)
        self._waiting.setdefault(reader, deque()).append(waiting)
        self._begin_next()

    @property
    def in_flight_s(self) -> float:
        """How long the oldest read under way has taken so far; 0 if there is none."""
        began_s = next(iter(self._under_way.values()), None)
        return 0.0 if began_s is None else self._loop.time() - began_s

    @property
    def next_deadline_s(self) -> float:
        """Infinite: no read has a deadline."""
        return math.inf

    def expire(self, now_s: float) -> None:
        """Do nothing: reads have no deadline."""

    def give_up(self) -> None:
        """Refuse the reads that wait for a thread, and begin no other."""
        waiting, self._waiting = self._waiting, {}
        for read in itertools.chain.from_iterable(waiting.values()):
            read.refuse()
        self._threads.shutdown(wait=False)

    def _begin_next(self) -> None:
        while self._waiting and len(self._under_way) < DISK_READS_MAX:
            reader = next(iter(self._waiting))
            reads = self._waiting.pop(reader)
            read = reads.popleft()
            if reads:
                self._waiting[reader] = reads
            read.begin()

    def _forget(self, reader: Reader) -> None:
        """Drop the waiting reads of a closed connection; a read under way ends by itself."""
        self._waiting.pop(reader, None)

    def _begin(
        self,
        reader: Reader,
        read: Callable[[], ReadT],
        ended: Callable[["asyncio.Future[ReadT]"], None],
    ) -> None:
        future = self._loop.run_in_executor(self._threads, read)
        self._under_way[future] = self._loop.time()
        future.add_done_callback(partial(self._ended, reader, ended))

    def _ended(
        self,
        reader: Reader,
        ended: Callable[["asyncio.Future[ReadT]"], None],
        future: "asyncio.Future[ReadT]",
    ) -> None:
        self._begin_turn()
        del self._under_way[future]
        self._begin_next()
        ended(future)
        self._turns.release(reader)
