"""The judge of entries that rot: none of them is pushed, applied or answered."""

from collections import Counter
from collections.abc import Mapping, Sequence

from dledger_sim.group.disk import Entry, SimDisk
from dledger_sim.judges.violation import ViolationError


class RotRules:
    """Knows what was written where something has rotted since."""

    def __init__(self, disks: Mapping[str, SimDisk]) -> None:
        self._disks = disks
        self.counts: Counter[str] = Counter()
        """What happened, by its name; empty where nothing has rotted."""

    def serves(self, member_id: str, first_index: int, entries: Sequence[Entry]) -> None:
        """Rule 31: what leaves a member is what was written there."""
        disk = self._disks[member_id]
        if not disk.rotten:
            return
        for index, entry in enumerate(entries, first_index):
            if entry != disk.cached[index]:
                raise ViolationError(
                    "a rotten entry is never served",
                    f"{member_id} gives {entry} for entry {index}, which was {disk.cached[index]}",
                )

    def saved(self, member_id: str) -> None:
        """A member has saved that it joins no more: so it is whole."""
        disk = self._disks[member_id]
        if disk.set_aside_count:
            disk.set_aside_count = 0
            self.counts["healed"] += 1
