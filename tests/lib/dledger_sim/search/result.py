"""The limits of a search, and its result."""

import resource
import sys
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits at which a search stops before it is complete."""

    visits_max: int = sys.maxsize
    seconds_max: float = float("inf")
    memory_max_bytes: int = 6 << 30

    def reached(self, visit_count: int, started_s: float) -> bool:
        """Return whether a search that began at `started_s` must stop."""
        return (
            visit_count >= self.visits_max
            or time.perf_counter() - started_s >= self.seconds_max
            or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10 >= self.memory_max_bytes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The counts of a search."""

    state_count: int
    """States of the group."""
    crashed_count: int
    """States of the group that follow a crash."""
    visit_count: int
    """Visits of states. A state is visited again when more messages may be in transit there."""
    transition_count: int
    """Inputs and crashes that change a member, summed over all visits."""
    member_state_count: int
    message_count: int
    complete: bool
    elapsed_s: float
    leaders_seen: int
    committed_max: int
    changes_committed: int
    """States of a member in which a membership change is committed."""

    def __str__(self) -> str:
        return (
            f"{'complete' if self.complete else 'not complete'}: {self.state_count:,} states, "
            f"{self.crashed_count:,} of them after a crash, {self.visit_count:,} visits, "
            f"{self.transition_count:,} transitions, {self.elapsed_s:.0f} s; "
            f"{self.member_state_count:,} states of a member, {self.message_count:,} messages"
        )
