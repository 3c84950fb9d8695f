"""Reads that never wait for the disk, and are short: for the event loop's own thread.

A pull in a thread costs the event loop, that thread and the other ones several waits for Python's
lock; reading some messages from the page cache takes less time than one such wait.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.entry_runs import RUN_BYTES_MAX
from dledger_broker.queues.errors import NotCachedError
from dledger_broker.queues.queue_store import QueueStore
from dledger_broker.queues.reader import MessageReader
from dledger_formats.log.disk import ENTRY_HEADER_SIZE
from dledger_formats.rocketmq.consume_queue import Unit

UNITS_MAX: Final = 64
"""Messages that are read at once."""
SCAN_UNITS: Final = 48
"""Messages that are looked at for those of some tags."""
BYTES_MAX: Final = 64 * 1024
"""Bytes of the messages that are read at once. Bytes between them in the log are not counted."""


class CachedLog(Protocol):
    """The log of a member, as far as it is read here. Nothing blocks."""

    @property
    def begin_index(self) -> int:
        """Index of the first entry."""

    @property
    def known_begin_pos(self) -> int | None:
        """Position of the first entry; None if that takes a read of the log."""

    def cached_at(self, pos: int, buffer: memoryview) -> bool:
        """Fill a buffer with stored bytes; return whether all are in the page cache."""

    def read_cached(self, fd: int, buffer: bytearray, at: int) -> int:
        """Read bytes of another file that are in the page cache; return how many."""


class _CachedUnits:
    """The units of messages, as far as they are in the page cache."""

    def __init__(self, store: QueueStore, log: CachedLog) -> None:
        self._store, self._read = store, log.read_cached

    def units(self, topic: str, queue_id: int, first_unit: int, count: int) -> list[Unit]:
        """See `QueueStore`. Raises NotCachedError."""
        queue = QueueId(topic, queue_id)
        units = self._store.cached_units(queue, first_unit, count, self._read)
        if units is None:
            raise NotCachedError(f"unit {first_unit} of {queue}")
        return units


class _UnknownFront:
    """Knows no first messages: finding them would take reads of the log."""

    def first_offset(self, queue: QueueId) -> int | None:
        """See `FirstMessages`. Raises NotCachedError."""
        raise NotCachedError(f"the first message of {queue}")

    def is_wanted(self, _: QueueId) -> bool:
        """See `FirstMessages`."""
        return False


def _limit(units: Sequence[Unit]) -> None:
    """Raise NotCachedError if the messages are too long to be read in the event loop."""
    if sum([unit[1] for unit in units]) > BYTES_MAX:
        raise NotCachedError("the messages are too long")


def cached_reader(
    store: QueueStore, log: CachedLog, created_index: Callable[[str], int | None]
) -> MessageReader:
    """Return a reader whose `pull_sound` and `kept` do not block, but raise NotCachedError.

    The reader is for one thread, since it reads all runs into one buffer: making a new buffer costs
    more than filling it, as the kernel clears its pages.
    """
    buffer = memoryview(bytearray(RUN_BYTES_MAX + ENTRY_HEADER_SIZE))

    def stored_at(pos: int, size: int) -> memoryview:
        run = buffer[:size]
        if len(run) < size or not log.cached_at(pos, run):
            raise NotCachedError(f"position {pos} of the log")
        return run

    def begin_pos() -> int:
        found = log.known_begin_pos
        if found is None:
            raise NotCachedError("where the log begins")
        return found

    return MessageReader(
        _CachedUnits(store, log), stored_at, begin_pos, created_index,
        lambda: log.begin_index, _UnknownFront(), scan_units=SCAN_UNITS, limit=_limit,
    )  # fmt: skip
