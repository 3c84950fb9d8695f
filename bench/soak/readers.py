"""Clients that read and tail the log all the time, and compare what they get."""

import asyncio
import zlib
from array import array
from collections.abc import Callable
from typing import Final

from dledger_client.client import DLedgerClient

PAUSE_S: Final = 0.05
"""Pause of a reader after each batch, so that it does not take the processor from the members."""


class Seen:
    """A checksum of each body that was served to a reader, by its index."""

    def __init__(self, blame: Callable[[str], None]) -> None:
        self.served = 0
        self._checksums: array[int] = array("q")
        self._blame = blame

    def serves(self, who: str, index: int, body: bytes) -> None:
        """Compare a body with what was served at its index before."""
        self.served += 1
        missing = index + 1 - len(self._checksums)
        if missing > 0:
            self._checksums.extend([-1] * missing)
        checksum = zlib.crc32(body)
        if self._checksums[index] not in (-1, checksum):
            self._blame(f"{who} was served two different bodies at index {index}")
        self._checksums[index] = checksum


async def tail(name: str, client: DLedgerClient, seen: Seen, blame: Callable[[str], None]) -> None:
    """Tail the log from its start; no entry may be left out or repeated."""
    expected = 0
    async for entry in client.tail(0):
        if entry.index != expected:
            blame(f"{name} got entry {entry.index} instead of entry {expected}")
        expected = entry.index + 1
        seen.serves(name, entry.index, entry.body)


async def read_again_and_again(
    name: str, client: DLedgerClient, seen: Seen, blame: Callable[[str], None]
) -> None:
    """Read the whole log from its start, again and again."""
    while True:
        expected = 0
        async for batch in client.read_batches(0):
            if batch.first_index != expected:
                blame(f"{name} got entry {batch.first_index} instead of entry {expected}")
            for number, body in enumerate(batch.bodies):
                seen.serves(name, batch.first_index + number, body)
            expected = batch.last_index + 1
            await asyncio.sleep(PAUSE_S)
        await asyncio.sleep(PAUSE_S)
