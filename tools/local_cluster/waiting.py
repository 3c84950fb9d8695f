"""Waiting for a condition, never for a time; and the condition that is asked for most."""

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
    """Poll until the condition holds; past the deadline raise, with what `explain` has to say.

    The condition may itself raise, to end the wait early when it can no longer come true.
    """
    end = time.monotonic() + deadline_seconds
    while not condition():
        if time.monotonic() > end:
            detail = explain()
            raise LocalClusterError(
                f"{what}: not within {deadline_seconds:g} s" + (f"\n{detail}" if detail else "")
            )
        time.sleep(poll_seconds)


def answers(url: str) -> bool:
    """Tell whether a health page of the cluster says that all is well."""
    opener = urllib.request.build_opener(
        # No proxy knows the way to this machine's own addresses.
        urllib.request.ProxyHandler({}),
        # The certificate is one that the program has just made for itself.
        urllib.request.HTTPSHandler(context=ssl._create_unverified_context()),
    )
    try:
        with opener.open(url, timeout=2) as response:
            return bool(response.status == HTTPStatus.OK)
    except (OSError, HTTPException):
        return False
