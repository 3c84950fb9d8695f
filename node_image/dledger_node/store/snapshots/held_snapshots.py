"""Which snapshots a member holds, wherever their bytes lie."""

import abc
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import BinaryIO

from dledger_node.store.snapshots.snapshot_meta import SnapshotMeta


class HeldSnapshots(abc.ABC):
    """What is held, the sound and the damaged; a change is made by one at a time."""

    def __init__(self, sound: Iterable[SnapshotMeta], damaged: Mapping[int, str]) -> None:
        """`damaged`: by last included index, why a snapshot cannot be trusted."""
        self._held = tuple(sorted(sound, key=lambda meta: meta.last_included_index))
        self._damaged = dict(damaged)

    @property
    def newest_first(self) -> tuple[SnapshotMeta, ...]:
        """All that are sound."""
        return self._held[::-1]

    @property
    def newest_index(self) -> int:
        """Last index that the newest includes; -1 when there is none."""
        return self._held[-1].last_included_index if self._held else -1

    @property
    def oldest_index(self) -> int:
        """Last index that the oldest includes; -1 when there is none.

        A log that goes on behind it can make the state anew from any one of the snapshots.
        """
        return self._held[0].last_included_index if self._held else -1

    @property
    def damaged(self) -> Mapping[int, str]:
        """By last included index: why it cannot be trusted."""
        return self._damaged

    @abc.abstractmethod
    def read(self, meta: SnapshotMeta, load: Callable[[BinaryIO], None]) -> None:
        """Have a snapshot loaded, once its bytes are what they were. StoreDamagedError."""

    @abc.abstractmethod
    def discard(self, index: int) -> None:
        """Remove a snapshot that nobody can use."""

    def _note(self, meta: SnapshotMeta) -> None:
        """It is there now, in place of any up to the same entry."""
        self._damaged.pop(meta.last_included_index, None)
        held = {found.last_included_index: found for found in (*self._held, meta)}
        self._held = tuple(held[index] for index in sorted(held))

    def _distrust(self, index: int, reason: str) -> None:
        """It is damaged, and says no more than that there was a state."""
        self._forget(index)
        self._damaged[index] = reason

    def _forget(self, index: int) -> None:
        """It is there no more."""
        self._damaged.pop(index, None)
        self._held = tuple(meta for meta in self._held if meta.last_included_index != index)

    def _surplus(self, reserved: int, keep: Collection[int]) -> list[int]:
        """What goes when one was saved, the oldest first: all that are damaged, and of the sound
        neither the newest `reserved` nor those to keep.
        """
        if not self._held:
            return []
        indexes = {meta.last_included_index for meta in self._held[:-reserved]}
        return sorted(self._damaged.keys() | (indexes - set(keep)))
