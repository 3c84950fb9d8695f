"""The entries that an earlier run of a producer has left in the log beyond its record.

A killed run may have sent up to a window of bodies after the last one in its record. The group
treats a body whose number it knows as a duplicate of the one that it has, so the next run must have
the same bodies as input. Before it sends any, it reads the log from the index in the record on, and
compares. A copy may reach a leader even later, from a socket of the killed run. So the entry that
the group returns for a number is compared as well.
"""

import contextlib
import hashlib
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from dledger_client.client import DLedgerClient
from dledger_client.commands.exits import UsageError
from dledger_client.commands.producer_record import ALL_AGAIN, Record
from dledger_client.errors import NoEntryError
from dledger_formats.log import disk
from dledger_formats.log.channels import WINDOW, number_of, sequence_near

SCAN_ENTRIES_MAX: Final = 1 << 20
"""How many entries are read before the first body is sent; other clients may have added more."""
DIGEST_BYTES: Final = 16


class Found(NamedTuple):
    """An entry of the producer."""

    place: int
    """The index of the entry."""
    digest: bytes


class EarlierRun:
    """The bodies after the acknowledged ones, by their numbers, from 1 on."""

    def __init__(self, client: DLedgerClient, record: Record, sent_max: int) -> None:
        """`sent_max` is the number of the last body that the earlier run may have sent."""
        self._client = client
        self._registration = record.producer
        self._base = record.base
        self._acknowledged = record.acknowledged
        self._sent_max = sent_max
        self._next_index = max(record.above_index, record.producer) + 1
        """The first entry that was not read yet."""
        self._number: int | None = None
        self.is_forgotten = False
        """Whether the group has forgotten the producer, so that all its entries were found."""
        self._found: dict[int, Found] = {}
        self._given: dict[int, bytes] = {}
        """The digests of the bodies of this run."""

    async def look(self, entries_max: int = SCAN_ENTRIES_MAX) -> None:
        """Read the log's entries up to its end, or `entries_max` of them.

        Raises UsageError if the log begins after the first of these entries.
        """
        first = self._next_index
        try:
            if self._number is None:
                self._number = number_of((await self._client.get(self._registration)).channel)
            reading = self._client.read_batches(first)
            async with contextlib.aclosing(reading) as batches:
                async for batch in batches:
                    for entry in batch.entries():
                        if number_of(entry.channel) == self._number:
                            self._note(entry.index, entry.magic, entry.channel, entry.body)
                    self._next_index = batch.last_index + 1
                    if self._next_index - first >= entries_max:
                        return
                    if self.is_forgotten:
                        return
        except NoEntryError as error:
            raise UsageError(
                "cannot tell what an earlier run of this producer has appended: entries from "
                f"{min(first, self._registration)} on are not there ({error}); use another name "
                f"{ALL_AGAIN}"
            ) from error

    @property
    def last_after_gap(self) -> int:
        """The last number in the log if an earlier one is missing from it; 0 if none is missing."""
        last = max(self._found, default=0)
        return last if last - self._acknowledged > len(self._found) else 0

    async def bodies(self) -> AsyncIterator[bytes]:
        """Read the bodies that are in the log, in the order of their numbers."""
        for number in sorted(self._found):
            yield (await self._client.get(self._found[number].place)).body

    def compare(self, number: int, body: bytes) -> Found | None:
        """Note a body of this run; return the entry with its number if that has another body."""
        if not self._acknowledged < number <= self._sent_max:
            return None
        self._given[number] = digest_of(body)
        return self._other(number)

    async def other_entry(self, number: int, index: int) -> Found | None:
        """Compare the entry that the group returned for a body; return the entry if it differs.

        The first call reads to the end of the log, so that one read serves all bodies in flight.
        """
        if number not in self._given:
            return None
        if number not in self._found:
            if not self._next_index <= index < self._next_index + SCAN_ENTRIES_MAX:
                self._next_index = index
            await self.look()
        if number not in self._found:
            self._found[number] = Found(index, digest_of((await self._client.get(index)).body))
        return self._other(number)

    def _other(self, number: int) -> Found | None:
        found = self._found.get(number)
        return None if found is None or found.digest == self._given[number] else found

    def _note(self, index: int, magic: int, channel: int, body: bytes) -> None:
        if magic != disk.NORMAL:  # another producer is registered under this number
            self._number, self.is_forgotten = -1, True
            return
        number = self._base + sequence_near(channel, self._acknowledged - self._base)
        if self._acknowledged < number <= self._acknowledged + WINDOW:
            self._found.setdefault(number, Found(index, digest_of(body)))


def digest_of(body: bytes) -> bytes:
    """Return the digest by which bodies are compared."""
    return hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest()
