"""Polling until a condition holds."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

WAIT_S = 60.0  # four JVMs may start at once, on two cores
POLL_S = 0.01


def wait_for(
    found: Callable[[], T | None], what: str, timeout_s: float = WAIT_S, *, poll_s: float = POLL_S
) -> T:
    """Poll until `found` returns a true value, and return it.

    Raises AssertionError with `what` after `timeout_s`.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        answer = found()
        if answer:
            return answer
        if time.monotonic() > deadline_s:
            raise AssertionError(f"timed out after {timeout_s:g} s: {what}")
        time.sleep(poll_s)
