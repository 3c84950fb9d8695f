"""Bounds on the requests of one kind that are answered at the same time.

Such requests hold something for long: an open file, or a wait for news. One address gets only a
part of the places, so that it does not keep others out.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Final

from aiohttp import web

RETRY_AFTER: Final = "Retry-After"
"""Sent with what this member cannot answer yet: no place is free, or bytes are not yet known to be
committed.
"""
LATER: Final = {RETRY_AFTER: "1"}


class Places:
    """Bounds how many requests are answered at a time, in all and for each address."""

    def __init__(self, requests: str, count_max: int, per_address_max: int) -> None:
        """`requests` says for errors what holds the places, in the plural."""
        self._requests = requests
        self._count_max = count_max
        self._per_address_max = per_address_max
        self._taken: Counter[str] = Counter()

    @contextlib.contextmanager
    def take(self, address: str) -> Iterator[None]:
        """Take a place while the block runs. Raises HTTPServiceUnavailable."""
        total, of_address = self._taken.total(), self._taken[address]
        if total >= self._count_max or of_address >= self._per_address_max:
            raise web.HTTPServiceUnavailable(
                text=f"{total} {self._requests}, {of_address} of them from {address}; "
                "ask again later\n",
                headers=LATER,
            )
        self._taken[address] += 1
        try:
            yield
        finally:
            self._taken[address] -= 1
            if not self._taken[address]:
                del self._taken[address]
