"""A pytest plugin for `--rough SEED`: sockets are ready in a random order, and the process pauses.

Every outcome is one that a busy machine may have too, so a test that fails has a race. The same
seed gives a test the same random numbers, but not the same times.
"""

import random
import selectors
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

LATER_SHARE: Final = 0.3
"""The share of the ready sockets that are reported in a later turn of the loop."""
PAUSE_SHARE: Final = 0.003
PAUSE_S: Final = (0.06, 0.25)
"""How often, and how long, the process pauses after it has waited for sockets."""


class RoughSelector(selectors.EpollSelector):
    """Reports some of the ready sockets, in a random order; the others are still ready later."""

    random = random.Random(0)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the ready sockets, perhaps after a pause."""
        ready = super().select(timeout)
        if self.random.random() < PAUSE_SHARE:
            time.sleep(self.random.uniform(*PAUSE_S))  # this pause is what is tested with
        self.random.shuffle(ready)
        return [each for each in ready if self.random.random() >= LATER_SHARE]


def add_option(parser: pytest.Parser) -> None:
    """Declare `--rough`."""
    parser.addoption(
        "--rough",
        metavar="SEED",
        help="let event loops of the tests run as on a busy machine, to find races of tests",
    )


def register(config: pytest.Config) -> None:
    """Make event loops rough if `--rough` is given."""
    seed = config.getoption("--rough")
    if seed is not None:
        config.pluginmanager.register(_RoughLoops(seed))


class _RoughLoops:
    def __init__(self, seed: str) -> None:
        self._seed = seed

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        """Give the loops that begin during this test the selector."""
        RoughSelector.random = random.Random(f"{self._seed} {item.nodeid}")
        friendly = selectors.DefaultSelector
        selectors.DefaultSelector = RoughSelector  # type: ignore[assignment,misc]
        try:
            return (yield)
        finally:
            selectors.DefaultSelector = friendly  # type: ignore[misc]
