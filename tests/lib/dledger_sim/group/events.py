"""Simulated time: a heap of planned calls."""

import abc
import heapq
from collections.abc import Callable
from typing import Any, Final

from dledger_sim.judges.violation import ViolationError

ACTS_FIRST: Final = 1 << 40

Event = tuple[int, int, Callable[..., None], tuple[Any, ...]]


class Events(abc.ABC):
    """The planned events, and the current time."""

    def __init__(self) -> None:
        self.now_us = 0
        self.event_count = 0
        self._planned: list[Event] = []
        self._planned_count = 0

    def after(self, delay_us: int, action: Callable[..., None], *arguments: Any) -> None:
        """Plan an event. Events with equal times happen in the order of planning."""
        self._planned_count = number = self._planned_count + 1
        heapq.heappush(self._planned, (self.now_us + delay_us, number, action, arguments))

    def act_after(self, delay_us: int, action: Callable[..., None], *arguments: Any) -> None:
        """Plan an event before all others of its time, so that its time alone identifies it."""
        assert delay_us > 0
        self._planned_count += 1
        number = self._planned_count - ACTS_FIRST
        heapq.heappush(self._planned, (self.now_us + delay_us, number, action, arguments))

    def step(self) -> None:
        """Execute the next event."""
        self.now_us, _, action, arguments = heapq.heappop(self._planned)
        self.event_count += 1
        action(*arguments)

    def run_until(
        self,
        condition: Callable[[], bool],
        timeout_us: int,
        *,
        rule: str = "a healed group recovers in time",
    ) -> None:
        """Execute events until the condition holds. Raises ViolationError at the timeout."""
        deadline_us = self.now_us + timeout_us
        while not condition():
            if self.now_us > deadline_us:
                raise ViolationError(
                    rule, f"not within {timeout_us / 1000:.0f} ms: {self.described()}"
                )
            self.step()

    @abc.abstractmethod
    def described(self) -> str:
        """Describe the state of the group in one line."""
