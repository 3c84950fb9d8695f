"""The sequences with which a producer numbers its appends (docs/idempotent-appends.md). No IO."""

from dledger_formats.log.channels import WINDOW


class Sequences:
    """The sequences of one registration."""

    def __init__(self, producer_id: int, acknowledged: int = 0) -> None:
        """Begin after the sequences up to `acknowledged`, all of which are in the log."""
        self.producer_id = producer_id
        self._next = acknowledged + 1
        self._acknowledged = acknowledged
        # The oldest unresolved sequence, or _next if all are resolved.
        self._oldest = acknowledged + 1
        self._unresolved: set[int] = set()

    def has_room(self, count: int = 1) -> bool:
        """Return whether the next `count` sequences fit the group's window.

        The group accepts sequences less than WINDOW below, and at most WINDOW above, the highest
        in its log.
        """
        last = self._next + count - 1
        return last - self._oldest < WINDOW and last - self._acknowledged <= WINDOW

    def is_exhausted(self, count: int = 1) -> bool:
        """Return whether the next `count` sequences of this registration can never be used."""
        return not (self.has_room(count) or self._unresolved)

    def take(self, count: int = 1) -> int:
        """Return the first of the next `count` sequences; `has_room` must be true."""
        first, self._next = self._next, self._next + count
        self._unresolved.update(range(first, self._next))
        return first

    def resolve(self, first: int, count: int = 1, *, acknowledged: bool) -> None:
        """Mark sequences as resolved: no further copy of their appends will be sent."""
        if count == 1:  # by far the most frequent case, and faster this way
            self._unresolved.discard(first)
        else:
            self._unresolved.difference_update(range(first, first + count))
        if acknowledged:
            self._acknowledged = max(self._acknowledged, first + count - 1)
        while self._oldest < self._next and self._oldest not in self._unresolved:
            self._oldest += 1
