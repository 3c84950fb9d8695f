"""Simulated time: a heap of planned events, each of them a call."""

import heapq
from collections.abc import Callable
from typing import Any, Final

ACTS_FIRST: Final = 1 << 40

Event = tuple[int, int, Callable[..., None], tuple[Any, ...]]


class Events:
    """What is planned, and the time until which it has happened."""

    def __init__(self) -> None:
        self.now_us = 0
        self.event_count = 0
        self._planned: list[Event] = []
        self._planned_count = 0

    def after(self, delay_us: int, action: Callable[..., None], *arguments: Any) -> None:
        """Plan an event; those of one time happen in the order in which they were planned."""
        self._planned_count = number = self._planned_count + 1
        heapq.heappush(self._planned, (self.now_us + delay_us, number, action, arguments))

    def act_after(self, delay_us: int, action: Callable[..., None], *arguments: Any) -> None:
        """Plan an event that comes before all others of its time, so that a tape can tell when."""
        assert delay_us > 0
        self._planned_count += 1
        number = self._planned_count - ACTS_FIRST
        heapq.heappush(self._planned, (self.now_us + delay_us, number, action, arguments))

    def step(self) -> None:
        """Let the next event happen."""
        self.now_us, _, action, arguments = heapq.heappop(self._planned)
        self.event_count += 1
        action(*arguments)
