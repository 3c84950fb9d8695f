"""The judge of rotten entries: a member never pushes, applies or returns one."""

from collections import Counter
from collections.abc import Mapping, Sequence

from dledger_sim.group.disk import Entry, SimDisk
from dledger_sim.judges.violation import ViolationError


class RotRules:
    """Compares what members read with what they once wrote."""

    def __init__(self, disks: Mapping[str, SimDisk]) -> None:
        self._disks = disks
        self.counts: Counter[str] = Counter()
        """Counts of events by name; empty if nothing has rotted."""

    def serves(self, member_id: str, first_index: int, entries: Sequence[Entry]) -> None:
        """Check rule 31: the entries that a member sends are those that were written."""
        disk = self._disks[member_id]
        if not disk.rotten:
            return
        for index, entry in enumerate(entries, first_index):
            if entry != disk.cached[index]:
                raise ViolationError(
                    "a rotten entry is never served",
                    f"{member_id} serves {entry} as entry {index}, which was {disk.cached[index]}",
                )

    def mended(self, member_id: str, wrong: Sequence[int], *, is_done: bool) -> None:
        """Check rule 35 after a member has mended its log: it is as it was before it rotted.

        `wrong` are the entries that differ; `is_done` says whether the member believes that all
        are mended.
        """
        rotten = self._disks[member_id].rotten
        self.counts["mended_entries"] += len(rotten.keys() - set(wrong))
        if (is_done and wrong) or not rotten.keys() >= set(wrong):
            raise ViolationError(
                "a mended log is as it was written",
                f"{member_id} takes its log for sound, but entries {wrong} differ",
            )

    def sets_aside(self, member_id: str, *, can_be_mended: bool) -> None:
        """Check rule 36 when a member gives up its damaged log, and with it its vote."""
        if can_be_mended:
            raise ViolationError(
                "no log is set aside that can be mended",
                f"{member_id} joins, but peers that answer have each of its rotten entries sound",
            )

    def saved(self, member_id: str) -> None:
        """Count a member as healed: it has saved that it no longer joins."""
        disk = self._disks[member_id]
        if disk.set_aside_count:
            disk.set_aside_count = 0
            self.counts["healed"] += 1
