"""Waiting for conditions on a cluster, where to ask is to run kubectl."""

from collections.abc import Callable
from typing import TypeVar

from tools.groups import waiting

T = TypeVar("T")

POLL_S = 0.2


def wait_for(found: Callable[[], T | None], what: str, timeout_s: float = waiting.WAIT_S) -> T:
    """See `tools.groups.waiting`."""
    return waiting.wait_for(found, what, timeout_s, poll_s=POLL_S)
