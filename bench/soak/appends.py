"""Clients that append at a steady rate, and remember what was acknowledged."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Final

from dledger_client.append.outcomes import Acknowledged, Refused
from dledger_client.client import DLedgerClient

PACE_S: Final = 0.01
IN_FLIGHT: Final = 2048
SMALL_BYTES: Final = (40, 400)
LARGE_BYTES: Final = 64 * 1024
LARGE_EVERY: Final = 2000
"""One body in so many is large."""


def body_of(name: str, number: int) -> bytes:
    """Return the body of an append; it names its producer and its number."""
    size = LARGE_BYTES if number % LARGE_EVERY == LARGE_EVERY - 1 else 0
    size = size or random.Random(number).randint(*SMALL_BYTES)
    return f"{name} {number} ".encode().ljust(size, b".")


def named(body: bytes) -> tuple[str, int]:
    """Return the producer and the number that a body names. Raises ValueError if it names none."""
    name, number, _ = body.split(b" ", 2)
    return name.decode(), int(number)


class Producer:
    """Appends distinct bodies, without waiting for earlier ones."""

    def __init__(self, name: str, client: DLedgerClient, per_second: int) -> None:
        self.name = name
        self.begun = 0
        self.acknowledged: dict[int, int] = {}
        """The index of each acknowledged append, by its number."""
        self.refused: set[int] = set()
        self.unknown: set[int] = set()
        self._client = client
        self._per_second = per_second
        self._is_over = False

    async def run(self) -> None:
        """Append until `stop`, and wait for the outcome of each append."""
        outcomes = self._client.append_all(self._bodies(), in_flight=IN_FLIGHT)
        async for outcome in outcomes:
            if isinstance(outcome, Acknowledged):
                self.acknowledged[outcome.number] = outcome.index
            elif isinstance(outcome, Refused):
                self.refused.add(outcome.number)
            else:
                self.unknown.add(outcome.number)

    def stop(self) -> None:
        """Start no further appends."""
        self._is_over = True

    async def _bodies(self) -> AsyncIterator[bytes]:
        clock = asyncio.get_running_loop().time
        owed, then_s = 0.0, clock()
        while not self._is_over:
            now_s = clock()
            # Appends that were missed during a pause are not made up for.
            owed = min(owed + (now_s - then_s) * self._per_second, float(self._per_second))
            then_s = now_s
            while owed >= 1:
                owed -= 1
                self.begun += 1
                yield body_of(self.name, self.begun - 1)
            await asyncio.sleep(PACE_S)
