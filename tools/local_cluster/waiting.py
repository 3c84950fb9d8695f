"""Poll conditions, and check health pages."""

from __future__ import annotations

import ssl
import time
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from http.client import HTTPException

from .errors import LocalClusterError

POLL_SECONDS = 0.1


def wait_until(
    what: str,
    condition: Callable[[], bool],
    *,
    deadline_seconds: float,
    explain: Callable[[], str] = lambda: "",
    poll_seconds: float = POLL_SECONDS,
) -> None:
    """Poll until the condition holds; raises LocalClusterError at the deadline.

    The error includes the result of `explain`. The condition may raise an error itself if it can no
    longer become true.
    """
    end = time.monotonic() + deadline_seconds
    while not condition():
        if time.monotonic() > end:
            detail = explain()
            raise LocalClusterError(
                f"timed out after {deadline_seconds:g} s: {what}"
                + (f"\n{detail}" if detail else "")
            )
        time.sleep(poll_seconds)


def answers(url: str) -> bool:
    """Return whether a health page of the cluster returns OK."""
    opener = urllib.request.build_opener(
        # No proxy can reach this machine's own addresses.
        urllib.request.ProxyHandler({}),
        # The certificates are self-signed or from the cluster's own authority.
        urllib.request.HTTPSHandler(context=ssl._create_unverified_context()),
    )
    try:
        with opener.open(url, timeout=2) as response:
            return bool(response.status == HTTPStatus.OK)
    except (OSError, HTTPException):
        return False
