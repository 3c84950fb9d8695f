"""Reads the entries of neighboring units together.

The messages of a queue lie close together in the log, with those of other queues between them. Each
read of the log releases Python's lock, and must get it back from the event loop and the other
readers. That costs more than reading some bytes of other queues.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from dledger_formats.log.disk import ENTRY_HEADER_SIZE
from dledger_formats.rocketmq.consume_queue import Unit

RUN_BYTES_MAX: Final = 256 * 1024
"""A run is longer only if its first entry is."""
GAP_BYTES_MAX: Final = 8 * 1024
"""The most bytes between two entries of a run: a message of 1 KiB in each of seven other queues."""


StoredAt: TypeAlias = Callable[[int, int], bytes | memoryview]
"""Reads bytes of the log, fewer at the end of a segment. They may change with the next call."""


class StoredEntry(NamedTuple):
    """Where the bytes of an entry are."""

    source: bytes | memoryview
    begin: int
    end: int
    """Where the entry ends, or the segment if it ends before."""


class EntryRuns:
    """The entries of some units. Ask for them in order."""

    def __init__(self, stored_at: StoredAt, units: Sequence[Unit]) -> None:
        self._stored_at = stored_at
        self.units = units
        self._run: bytes | memoryview = b""
        self._run_pos = 0

    def entry(self, number: int) -> StoredEntry:
        """Return the entry of a unit, whose size must be positive. Blocks.

        Raises LookupError if the log has no entry there.
        """
        unit = self.units[number]
        pos, size = unit.physical_offset - ENTRY_HEADER_SIZE, ENTRY_HEADER_SIZE + unit.size
        begin = pos - self._run_pos
        if not (self._run and begin >= 0 and begin + size <= len(self._run)):
            self._run = self._stored_at(pos, self._run_bytes(number))
            self._run_pos, begin = pos, 0
        return StoredEntry(self._run, begin, min(begin + size, len(self._run)))

    def _run_bytes(self, number: int) -> int:
        """Return the bytes of the run that begins with the entry of a unit."""
        first = self.units[number]
        begin = first.physical_offset
        end = begin + first.size
        for unit in islice(self.units, number + 1, None):
            next_pos = unit.physical_offset - ENTRY_HEADER_SIZE
            next_end = unit.physical_offset + unit.size
            is_near = end <= next_pos <= end + GAP_BYTES_MAX and unit.size > 0
            if not is_near or next_end - begin > RUN_BYTES_MAX:
                break
            end = next_end
        return ENTRY_HEADER_SIZE + end - begin
