"""Units of consume queues that are in memory, and in no file yet.

The event loop adds them, and forgets them once they are written. Any thread may look them up: what
it needs of a queue is one object, which it reads once.
"""

from typing import Final, NamedTuple

from dledger_broker.queues.builder import QueueChanges, QueueId, Run
from dledger_formats.rocketmq.consume_queue import UNIT, UNIT_BYTES, Unit

UNITS_MAX: Final = 16 * 1024
"""Units in memory; further ones wait until these are written."""
QUEUES_MAX: Final = 2048
"""Queues that have them: forgetting a thousand queues takes half a ms."""


class UnwrittenUnits:
    """The last units of some queues; those of each queue are consecutive."""

    def __init__(self) -> None:
        self._runs: dict[QueueId, Run] = {}
        self.count = 0
        """Number of units."""

    def fits(self, changes: QueueChanges) -> bool:
        """Return whether these changes only continue queues, and there is room for their units."""
        if self.count >= UNITS_MAX or len(self._runs) >= QUEUES_MAX:
            return False
        for queue, runs in changes.runs.items():
            known = self._runs.get(queue)
            if len(runs) > 1 or (known is not None and known.next_unit != runs[0].first_unit):
                return False
        return True

    def add(self, changes: QueueChanges) -> None:
        """Add units that fit."""
        for queue, (run,) in changes.runs.items():
            known = self._runs.get(queue)
            if known is None:
                self._runs[queue] = run
            else:
                known.units.extend(run.units)
            self.count += len(run.units) // UNIT_BYTES

    def find(self, queue: QueueId, first_unit: int, count: int) -> "FoundUnits | None":
        """Return those of `count` units from `first_unit` on that are here; None if none is."""
        run = self._runs.get(queue)
        if run is None or run.first_unit >= first_unit + count:
            return None
        first = max(first_unit, run.first_unit)
        begin, end = first - run.first_unit, first_unit + count - run.first_unit
        raw = bytes(run.units[begin * UNIT_BYTES : end * UNIT_BYTES])
        return FoundUnits(first, list(map(Unit._make, UNIT.iter_unpack(raw)))) if raw else None

    def taken(self) -> list[tuple[QueueId, Run]]:
        """Return a copy of all that is here; any thread may call it."""
        # `dict.copy` is atomic. Making a list of the items is not: garbage collection may start.
        return [(queue, run.copy()) for queue, run in self._runs.copy().items()]

    def forget(self, written: list[tuple[QueueId, Run]]) -> None:
        """Forget units that were taken, and are written now."""
        for queue, run in written:
            rest = self._runs[queue].units[len(run.units) :]
            self.count -= len(run.units) // UNIT_BYTES
            if rest:
                self._runs[queue] = Run(run.next_unit, rest)
            else:
                del self._runs[queue]

    def drop(self, topic: str) -> None:
        """Forget a topic. No units may be added meanwhile."""
        self._runs = {queue: run for queue, run in self._runs.items() if queue.topic != topic}
        self.count = sum(len(run.units) // UNIT_BYTES for run in self._runs.values())

    def clear(self) -> None:
        """Forget everything. No units may be added meanwhile."""
        self._runs, self.count = {}, 0


class FoundUnits(NamedTuple):
    """Consecutive units of a queue."""

    first_unit: int
    units: list[Unit]
