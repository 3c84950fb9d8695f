"""The network: when, how often and whether a message arrives."""

import random

from dledger_sim.conditions import Conditions


class SimNetwork:
    """Links between members, each with a direction of its own."""

    def __init__(self, conditions: Conditions, rng: random.Random) -> None:
        self.conditions = conditions
        self._rng = rng
        self._cut: set[tuple[str, str]] = set()
        self._last_arrival_us: dict[tuple[str, str], int] = {}

    def cut(self, sender: str, receiver: str) -> None:
        """Let nothing through from one to the other."""
        self._cut.add((sender, receiver))

    def restore(self) -> None:
        """Let everything through again."""
        self._cut.clear()

    def is_cut(self, sender: str, receiver: str) -> bool:
        """Tell whether nothing gets through."""
        return (sender, receiver) in self._cut

    def arrivals_us(self, now_us: int, sender: str, receiver: str) -> list[int]:
        """When a message sent now arrives: never, once, or twice."""
        conditions, rng = self.conditions, self._rng
        link = (sender, receiver)
        if link in self._cut or rng.random() < conditions.loss:
            return []
        copies = 2 if rng.random() < conditions.duplicate else 1
        return [self._arrival_us(now_us, link) for _ in range(copies)]

    def _arrival_us(self, now_us: int, link: tuple[str, str]) -> int:
        arrival_us = now_us + 50 + int(self._rng.expovariate(1 / self.conditions.delay_us))
        if self.conditions.in_order:
            arrival_us = max(arrival_us, self._last_arrival_us.get(link, 0) + 1)
            self._last_arrival_us[link] = arrival_us
        return arrival_us
