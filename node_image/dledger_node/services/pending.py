"""Appends that wait for their quorum, in the order of their indexes."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dledger_node.remoting.service import AppendCall, ClientCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Entries that follow one another, and who asked for them: as many calls, one entry each and in
    their order, or one call for all.
    """

    first_index: int
    term: int
    calls: Sequence[ClientCall]
    entry_count: int
    deadline_s: float
    body_bytes: int

    @property
    def last_index(self) -> int:
        """Index of the last entry."""
        return self.first_index + self.entry_count - 1


class PendingAppends:
    """A queue of batches, counted so that it can be bounded."""

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()
        self.count = 0
        """Of entries."""
        self.body_bytes = 0

    @property
    def first_term(self) -> int | None:
        """Term in which the first of them was proposed; None when nothing waits."""
        return self._batches[0].term if self._batches else None

    def add(self, batch: Batch) -> None:
        """Queue a batch; its indexes follow those queued before."""
        self._batches.append(batch)
        self.count += batch.entry_count
        self.body_bytes += batch.body_bytes

    def take_committed(self, committed_index: int) -> Iterator[Batch]:
        """Take the batches, and of the last one the part, that are committed."""
        while self._batches and self._batches[0].first_index <= committed_index:
            batch = self._batches[0]
            if batch.last_index <= committed_index:
                yield self._take_first()
                continue
            if len(batch.calls) == 1:
                return  # one answer, and not yet
            done = committed_index - batch.first_index + 1
            self._take_first()
            rest = _slice(batch, done, len(batch.calls))
            self._batches.appendleft(rest)
            self.count += rest.entry_count
            self.body_bytes += rest.body_bytes
            yield _slice(batch, 0, done)

    def take_expired(self, now_s: float) -> Iterator[Batch]:
        """Take the batches whose time is over; they may still commit later."""
        while self._batches and self._batches[0].deadline_s <= now_s:
            yield self._take_first()

    def take_all(self) -> Iterator[Batch]:
        """Take everything: this member leads no more."""
        while self._batches:
            yield self._take_first()

    def _take_first(self) -> Batch:
        batch = self._batches.popleft()
        self.count -= batch.entry_count
        self.body_bytes -= batch.body_bytes
        return batch


def _slice(batch: Batch, begin: int, end: int) -> Batch:
    calls = [call for call in batch.calls[begin:end] if isinstance(call, AppendCall)]
    return Batch(
        first_index=batch.first_index + begin,
        term=batch.term,
        calls=calls,
        entry_count=end - begin,
        deadline_s=batch.deadline_s,
        body_bytes=sum(len(call.body) for call in calls),
    )
