"""Waiting for conditions on a cluster."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_S = 0.2


def wait_for(found: Callable[[], T | None], what: str, timeout_s: float = 60.0) -> T:
    """Ask until the answer is true; AssertionError with `what` when it never is."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        answer = found()
        if answer:
            return answer
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        time.sleep(POLL_S)
