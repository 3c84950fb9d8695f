"""Appends at a steady rate through a client that keeps going while leaders fail."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Final

from dledger_client.client import DLedgerClient
from dledger_client.errors import ClientError, OutcomeUnknownError

PACE_S: Final = 0.005
UNANSWERED_MAX: Final = 20_000
"""Most appends in flight; beyond it no new ones start, which bounds the load of a long gap."""


class Load:
    """Starts appends at a steady rate, without waiting for earlier ones."""

    def __init__(self, client: DLedgerClient, per_second: int) -> None:
        self._client = client
        self._per_second = per_second
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_acknowledged = asyncio.Event()
        self._number = 0
        self.acknowledged: list[tuple[int, int]] = []
        """Number and index of each acknowledged append."""
        self.acknowledged_s: list[float] = []
        self.unknown = 0
        self.refused = 0

    @staticmethod
    def body(number: int) -> bytes:
        """Return the body of the append with this number."""
        return (b"record %d " % number).ljust(200, b".")

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Append until the block ends; then wait for the appends in flight."""
        pacer = asyncio.create_task(self._pace())
        try:
            yield
        finally:
            pacer.cancel()
            await asyncio.gather(*self._tasks)

    async def more(self, count: int) -> None:
        """Wait until `count` more appends are acknowledged."""
        goal = len(self.acknowledged) + count
        while len(self.acknowledged) < goal:
            self._is_acknowledged.clear()
            await self._is_acknowledged.wait()

    def longest_pause_s(self, first: int) -> float:
        """Return the longest pause between two acknowledgements, from number `first` on."""
        return max((b - a for a, b in pairwise(self.acknowledged_s[first:])), default=0.0)

    async def _pace(self) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        begun = 0
        while True:
            due = int((loop.time() - began_s) * self._per_second)
            for _ in range(min(due - begun, UNANSWERED_MAX - len(self._tasks))):
                task = loop.create_task(self._append(self._number))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                self._number += 1
            begun = due
            await asyncio.sleep(PACE_S)

    async def _append(self, number: int) -> None:
        try:
            appended = await self._client.append(self.body(number))
        except OutcomeUnknownError:
            self.unknown += 1
        except ClientError:
            self.refused += 1
        else:
            self.acknowledged.append((number, appended.index))
            self.acknowledged_s.append(time.monotonic())
            self._is_acknowledged.set()
