"""Consecutive entries of one answer, and the check that they are the requested ones."""

from collections.abc import Sequence
from typing import Self

from dledger_client.errors import BadAnswerError, ClientError
from dledger_formats.log.disk import DamagedRecordError
from dledger_formats.log.runs import bodies_of
from dledger_formats.protocol.entry import DLedgerEntry, entries_from_disk
from dledger_formats.protocol.read_range import ReadRangeResponse
from dledger_formats.protocol.requests import GetEntriesResponse, Message


class EntryBatch:
    """One or more consecutive entries; their bodies match their checksums."""

    __slots__ = ("_entries", "_stored", "bodies", "first_index")

    def __init__(
        self,
        first_index: int,
        bodies: Sequence[bytes],
        *,
        entries: list[DLedgerEntry] | None = None,
        stored: memoryview = memoryview(b""),  # noqa: B008 - it is empty and cannot change
    ) -> None:
        """Keep either the entries or their stored bytes."""
        self.first_index = first_index
        self.bodies = bodies
        """The body of each entry. Leaders also append entries of their own: at the beginning of a
        term, with an empty body, and for a change of the membership. `entries` tells them apart.
        """
        self._entries = entries
        self._stored = stored

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self.bodies)

    @property
    def last_index(self) -> int:
        """Index of the last entry."""
        return self.first_index + len(self.bodies) - 1

    def entries(self) -> list[DLedgerEntry]:
        """Return the entries, which the first call creates."""
        if self._entries is None:
            self._entries = list(entries_from_disk(self._stored))
        return self._entries

    def within(self, first: int, last: int | None) -> "EntryBatch | None":
        """Return the part of the batch in `first`..`last`; None if there is none."""
        end = len(self.bodies) if last is None else last - self.first_index + 1
        start = first - self.first_index
        if start <= 0 and end >= len(self.bodies):
            return self
        bodies = self.bodies[start:end]
        return EntryBatch(first, bodies, entries=self.entries()[start:end]) if bodies else None

    @classmethod
    def of(cls, answer: Message | ClientError, begin: int) -> Self:
        """Return the entries of the result of a GET or READ_RANGE for the entries from `begin` on.

        Raises the result if it is an error, and BadAnswerError if they are not the requested
        entries, or a body is damaged.
        """
        if isinstance(answer, ReadRangeResponse):
            try:
                return cls(begin, bodies_of(answer.stored, begin), stored=answer.stored)
            except DamagedRecordError as error:
                raise BadAnswerError(f"entries from {begin} on: {error}") from error
        entries = entries_of(answer, begin)
        return cls(begin, [entry.body for entry in entries], entries=entries)


def entries_of(answer: Message | ClientError, begin: int) -> list[DLedgerEntry]:
    """Return the entries of the result of a GET; raise the result if it is an error.

    Raises BadAnswerError if they are not the requested entries, or a body is damaged.
    """
    if isinstance(answer, ClientError):
        raise answer
    assert isinstance(answer, GetEntriesResponse)
    if not answer.entries:
        raise BadAnswerError(
            f"the response for entry {begin} reports success but contains no entry"
        )
    return check_entries(answer.entries, begin)


def check_entries(entries: list[DLedgerEntry], begin: int) -> list[DLedgerEntry]:
    """Return `entries` if they begin at `begin`, have no gap and match their checksums.

    Raises BadAnswerError otherwise.
    """
    for index, entry in enumerate(entries, begin):
        if entry.index != index:
            raise BadAnswerError(f"requested entry {index}, received entry {entry.index}")
        if not entry.is_intact:
            raise BadAnswerError(f"the body of entry {index} does not match its checksum")
    return entries
