"""The list of snapshots that a member holds, independent of where their bytes are stored."""

import abc
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import BinaryIO

from dledger_formats.log.snapshot_meta import SnapshotMeta


class HeldSnapshots(abc.ABC):
    """The sound and the damaged snapshots of a member; callers serialize changes."""

    def __init__(self, sound: Iterable[SnapshotMeta], damaged: Mapping[int, str]) -> None:
        """`damaged` maps the last included index of a damaged snapshot to the reason."""
        self._held = tuple(sorted(sound, key=lambda meta: meta.last_included_index))
        self._damaged = dict(damaged)

    @property
    def newest_first(self) -> tuple[SnapshotMeta, ...]:
        """The sound snapshots, newest first."""
        return self._held[::-1]

    @property
    def newest_index(self) -> int:
        """Last included index of the newest sound snapshot; -1 if there is none."""
        return self._held[-1].last_included_index if self._held else -1

    @property
    def oldest_index(self) -> int:
        """Last included index of the oldest sound snapshot; -1 if there is none.

        A log that continues after it can rebuild the state from any of the snapshots.
        """
        return self._held[0].last_included_index if self._held else -1

    @property
    def damaged(self) -> Mapping[int, str]:
        """The reason for each damaged snapshot, by its last included index."""
        return self._damaged

    @abc.abstractmethod
    def read(self, meta: SnapshotMeta, load: Callable[[BinaryIO], None]) -> None:
        """Verify a snapshot, then pass its data to `load`. Raises StoreDamagedError."""

    @abc.abstractmethod
    def discard(self, index: int) -> None:
        """Remove a snapshot that cannot be used."""

    def _note(self, meta: SnapshotMeta) -> None:
        """Add a snapshot; it replaces one with the same last included index."""
        self._damaged.pop(meta.last_included_index, None)
        held = {found.last_included_index: found for found in (*self._held, meta)}
        self._held = tuple(held[index] for index in sorted(held))

    def _distrust(self, index: int, reason: str) -> None:
        """Mark a snapshot as damaged; it then shows only that the member had a state."""
        self._forget(index)
        self._damaged[index] = reason

    def _forget(self, index: int) -> None:
        """Drop a snapshot from the list."""
        self._damaged.pop(index, None)
        self._held = tuple(meta for meta in self._held if meta.last_included_index != index)

    def _surplus(self, reserved: int, keep: Collection[int]) -> list[int]:
        """Return the snapshots to remove after a save, oldest first.

        These are all damaged ones, and all sound ones but the newest `reserved` and those in
        `keep`.
        """
        if not self._held:
            return []
        indexes = {meta.last_included_index for meta in self._held[:-reserved]}
        return sorted(self._damaged.keys() | (indexes - set(keep)))
