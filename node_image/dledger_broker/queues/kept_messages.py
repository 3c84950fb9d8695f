"""Which messages of a queue the log still has, by their queue offsets. All methods block.

The units show it, unless they are damaged. A message counts as gone only once the log shows it.
"""

from collections.abc import Callable
from typing import Final, Protocol

from dledger_broker.queues.builder import QueueId
from dledger_broker.queues.errors import (
    DeletedError,
    NotBuiltError,
    UnitRefusedError,
    UnprovedError,
)
from dledger_broker.queues.first_messages import FrontUnknownError
from dledger_formats.rocketmq.consume_queue import Unit

MIN_OFFSETS_MAX: Final = 65_536
"""Queues whose first offset is remembered."""


class Units(Protocol):
    """The consume queues, as far as they are read (`QueueStore`)."""

    def units(self, topic: str, queue_id: int, first_unit: int, count: int) -> list[Unit]:
        """Return up to `count` units of a queue, fewer at the end of a file or before a hole."""


class Front(Protocol):
    """What the log has shown of its first messages (`FirstMessages`)."""

    def first_offset(self, queue: QueueId) -> int | None:
        """Return the offset of the first message of a queue; None if no applied entry is one.

        Raises FrontUnknownError.
        """

    def is_wanted(self, queue: QueueId) -> bool:
        """Return whether the log has to be read further for a queue."""


class KeptMessages:
    """The messages of one member's queues that its log has. May be used in any thread."""

    def __init__(
        self,
        store: Units,
        begin_pos: Callable[[], int],
        created_index: Callable[[str], int | None],
        begin_index: Callable[[], int],
        front: Front,
    ) -> None:
        """`begin_pos` is where the log's first entry begins, `begin_index` is the index of that
        entry, and `created_index` is the index of the entry that created a topic; None if there is
        none.
        """
        self._store = store
        self._begin_pos = begin_pos
        self._created_index = created_index
        self._begin_index = begin_index
        self._front = front
        self._min_offsets: dict[QueueId, int] = {}
        """The first offsets that were found last; they may be wrong by now."""

    def min_offset(self, queue: QueueId, end_offset: int, *, has_all: bool) -> int:
        """Return the offset of the first message that the log still has; the end if it has none.

        The answer is that of the units, which may be damaged (`kept_offset`). Only a queue that has
        all messages, as `has_all` says, can show that none is left. Raises NotBuiltError if the
        first one may not be built yet.
        """
        begin_pos = self._begin_pos()
        if begin_pos == 0:
            return 0

        def is_there(offset: int) -> bool:
            units = self._store.units(queue.topic, queue.queue_id, offset, 1)
            return bool(units) and units[0].physical_offset >= begin_pos

        # Few removals move it, so it is mostly where it was. A search opens twenty files.
        first = self._min_offsets.get(queue, end_offset)
        is_right = first < end_offset and is_there(first) and not (first and is_there(first - 1))
        if not is_right:
            first = first_number(end_offset, is_there)
            if len(self._min_offsets) >= MIN_OFFSETS_MAX:
                self._min_offsets.clear()
            self._min_offsets[queue] = first
        if first == end_offset and end_offset > 0 and not has_all:
            raise NotBuiltError(f"{queue} has no unit of a message that is kept yet")
        return first

    def kept_offset(self, queue: QueueId, end_offset: int, *, has_all: bool) -> int:
        """Return the offset of the first message that the log still has; the end if it has none.

        The log itself has shown that it has no earlier one. Raises UnitRefusedError if the units
        say otherwise, UnprovedError if the log must be read further, and as `min_offset` does.
        """
        first = self.min_offset(queue, end_offset, has_all=has_all)
        if first == 0:
            return 0
        return max(first, self.proved(queue, first, end_offset, has_all=has_all))

    def is_proof_wanted(self, queue: QueueId) -> bool:
        """Return whether the log is still read for the first message of a queue."""
        return self._front.is_wanted(queue)

    def proved(self, queue: QueueId, first: int, end_offset: int, *, has_all: bool) -> int:
        """Return the first offset that the log has, which must not be below `first`."""
        created_index = self._created_index(queue.topic)
        if created_index is None:
            raise DeletedError(f"{queue.topic} was deleted")
        try:
            is_whole = created_index >= self._begin_index()
            found = 0 if is_whole else self._front.first_offset(queue)
        except FrontUnknownError as error:
            raise UnprovedError(str(error)) from error
        if found is None and not has_all:
            raise NotBuiltError(f"a message of {queue} may be being applied")
        kept = end_offset if found is None else found
        if kept < first:
            raise UnitRefusedError(f"{queue} has message {kept}, but no unit before {first}")
        return kept


def first_number(count: int, is_there: Callable[[int], bool]) -> int:
    """Return the first number from which on `is_there` holds; `count` if there is none below."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if is_there(middle):
            high = middle
        else:
            low = middle + 1
    return low
