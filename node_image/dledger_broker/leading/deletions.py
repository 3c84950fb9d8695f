"""Topics and groups whose deletion is on its way.

A message or an offset that is written after the record of a deletion, and before that is applied,
would be lost although it was acknowledged; a message would even bring the topic back. So nothing
is proposed for such a name until the deletion is applied, or is known never to be.
"""

from collections.abc import Callable


class Deletions:
    """The names that this leader deletes."""

    def __init__(self, applied_offset: Callable[[], int]) -> None:
        """`applied_offset` returns the physical offset of the last record that is applied."""
        self._applied_offset = applied_offset
        self._records: dict[str, int | None] = {}
        """By name: the physical offset of the record; None until it is stamped."""

    def __contains__(self, name: str) -> bool:
        """Return whether a name is being deleted."""
        if name not in self._records:
            return False
        offset = self._records[name]
        if offset is None or self._applied_offset() < offset:
            return True
        del self._records[name]
        return False

    def is_stamped(self, name: str) -> bool:
        """Return whether the deletion of a name is in the log, and not applied yet."""
        return name in self and self._records[name] is not None

    def begin(self, name: str) -> None:
        """Record that the deletion of a name is proposed, which must not begin twice."""
        self._records[name] = None

    def stamped(self, name: str, physical_offset: int) -> None:
        """Record the record's place in the log."""
        self._records[name] = physical_offset

    def refused(self, name: str) -> None:
        """Record that the deletion will never be in the log."""
        self._records.pop(name, None)

    def clear(self) -> None:
        """Forget everything: another term begins, and all of this one is applied."""
        self._records.clear()
