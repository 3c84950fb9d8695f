"""Waiting for conditions on a cluster. Each check runs kubectl, so the poll interval is longer."""

from collections.abc import Callable
from typing import TypeVar

from tools.groups import waiting

T = TypeVar("T")

POLL_S = 0.2


def wait_for(found: Callable[[], T | None], what: str, timeout_s: float = waiting.WAIT_S) -> T:
    """Wait as `tools.groups.waiting.wait_for` does, with this module's poll interval."""
    return waiting.wait_for(found, what, timeout_s, poll_s=POLL_S)
