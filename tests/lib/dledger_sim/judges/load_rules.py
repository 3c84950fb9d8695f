"""The rules for groups whose only fault is the load of clients."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from dledger_node.raft.core import Raft
from dledger_sim.judges.violation import ViolationError

TURN_US_MAX: Final = 5_000
"""Work that clients may cause in one turn of an event loop, on a fast machine."""
TURN_WALL_US: Final = 4_000
"""The slices of a turn, which are bounds of time on any machine."""
READS_WAITING_LIMIT: Final = 64
QUEUES: Final = 2
"""Number of queues: a request waits for the turn of its input, and a read once more."""
OTHERS: Final = 8
"""Number of further connections, which are not counted."""


class LoadRules:
    """Judges terms, turns of event loops, and the patience of modest clients."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._term: int | None = None
        """The term in which all members first followed one leader."""

    def turned(self, cores: Iterable[Raft | None]) -> None:
        """Check the terms after a turn of any member."""
        if self._term is None:
            terms = [core.term if core is not None else -1 for core in cores]
            is_led = any(core is not None and core.master for core in cores)
            if is_led and len(set(terms)) == 1:
                self._term = terms[0]
            return
        for core in cores:
            if core is not None and core.term != self._term:
                raise ViolationError(
                    "no load of clients changes a term",
                    f"a member is in term {core.term}; all followed one leader in {self._term}",
                )

    def worked_for_clients(self, fast_us: float) -> None:
        """Check the work of one turn."""
        self.counts["client_turns"] += 1
        if fast_us > TURN_US_MAX:
            raise ViolationError(
                "no client holds a turn of the event loop",
                f"a turn worked {fast_us / 1000:.1f} ms for clients",
            )

    def waits(self, reads: int) -> None:
        """Check how many reads of one connection wait."""
        if reads > READS_WAITING_LIMIT:
            raise ViolationError(
                "what one client may have waiting is bounded", f"{reads} reads of one client wait"
            )

    def served(self, what: str, waited_us: float, connections: int, slowness: int) -> None:
        """Check how long a modest client waited behind greedy ones."""
        self.counts["served"] += 1
        turn_us = TURN_WALL_US + slowness * TURN_US_MAX
        if waited_us > QUEUES * (connections + OTHERS) * turn_us:
            raise ViolationError(
                "a modest client is served in its turn",
                f"{what} waited for {waited_us / 1000:.0f} ms behind {connections} connections",
            )
