"""A disk on which log entries rot.

A rotten entry reads as a different entry with wrong checksums, but only if the member reads it from
the disk. Entries that the member has written since its start, or verified at its start, come from
the page cache, which does not rot. `durable` and `cached` keep the original entries for the judges.

Entries after the last checkpoint do not rot, because a real store cannot distinguish such rot from
a torn tail. A log that silently lacks entries is a rolled-back log (`OlderDisks`).
"""

from dataclasses import dataclass
from typing import Final

from dledger_node.errors import Damage, StoreDamagedError
from dledger_sim.group.conditions import Conditions
from dledger_sim.group.disk import Entry, SimDisk, chained
from dledger_sim.group.kernel_disk import KernelDisk

ROTTEN_BODY: Final = 1 << 50
"""Added to the index, it makes a body that no client appends."""
SEGMENT_ENTRIES: Final = 3
"""Entries per segment; a log is set aside by whole segments."""
MARGIN_ENTRIES: Final = 2
"""Entries before the end of the checkpoint that a start verifies too."""


@dataclass(slots=True)
class RottingDisk(SimDisk):
    """A disk whose reads return rotten entries, and verify them."""

    checkpoint_end: int = -1
    """Last entry that the last checkpoint records as durable."""
    seen_index: int = 0
    """First entry that the member has written or verified since its start."""

    def rot(self, first_index: int, end: int) -> None:
        """Let entries rot that the checkpoint records as durable."""
        assert self.begin_index <= first_index < end <= self.checkpoint_end + 1
        for index in range(first_index, end):
            self.rotten[index] = self.cached[index]._replace(body=ROTTEN_BODY + index)

    @property
    def verified_from(self) -> int:
        """Return the first entry that a start verifies."""
        return max(self.begin_index, self.checkpoint_end + 1 - MARGIN_ENTRIES)

    def verify(self, first_index: int, entries: list[Entry]) -> None:
        """Verify the checksums of entries that were read; raises StoreDamagedError."""
        for index, entry in enumerate(entries, first_index):
            if chained(self.cached[:index], entry.term, entry.body) != entry:
                self.damaged = True
                raise StoreDamagedError(f"entry {index} has rotted", Damage.BAD_ENTRY, index)

    def set_aside(self) -> None:
        """Keep the segments before the first damage, and term and vote; the member joins."""
        self.set_aside_count += 1
        self.lose(1.0)

    # -- overridden methods of SimDisk -------------------------------------------------------------

    def open(self) -> int:
        """See `SimDisk`. Recovery saves a checkpoint."""
        self.seen_index = self.verified_from
        self.checkpoint_end = len(self.durable) - 1
        return SimDisk.open(self)

    def read(self, first_index: int, end: int) -> list[Entry]:
        """See `SimDisk`. Raises StoreDamagedError for a rotten entry."""
        entries = SimDisk.read(self, first_index, end)
        if self.rotten:
            on_disk = range(first_index, min(end, self.seen_index))
            for index in on_disk:
                entries[index - first_index] = self.rotten.get(index, self.cached[index])
            self.verify(first_index, entries[: len(on_disk)])
        return entries

    def save_checkpoint(self, index: int) -> None:
        """See `SimDisk`."""
        SimDisk.save_checkpoint(self, index)
        self.checkpoint_end = max(self.checkpoint_end, self.checkpoint)

    def truncate(self, first_index: int) -> None:
        """See `SimDisk`."""
        SimDisk.truncate(self, first_index)
        self.checkpoint_end = min(self.checkpoint_end, first_index - 1)
        self.seen_index = min(self.seen_index, first_index)
        self._keep_rotten(self.begin_index, first_index)

    def replace(self, before: list[Entry]) -> None:
        """See `SimDisk`."""
        SimDisk.replace(self, before)
        self.checkpoint_end = -1
        self.seen_index = len(before)
        self.rotten.clear()

    def remove_before(self, first_index: int) -> None:
        """See `SimDisk`."""
        SimDisk.remove_before(self, first_index)
        self._keep_rotten(first_index, len(self.cached))

    def lose(self, kept_rate: float | None) -> None:
        """See `SimDisk`. A damaged disk keeps only whole segments before the first rotten entry."""
        if self.rotten and kept_rate is not None:
            sound_count = min(self.rotten) // SEGMENT_ENTRIES * SEGMENT_ENTRIES
            kept_rate = min(kept_rate, sound_count / len(self.durable))
        if kept_rate is None:
            self.set_aside_count = 0
        SimDisk.lose(self, kept_rate)
        self.rotten.clear()
        self.damaged = False
        self.checkpoint_end = len(self.durable) - 1

    def _keep_rotten(self, first_index: int, end: int) -> None:
        """Forget the rotten entries that were removed."""
        self.rotten = {at: entry for at, entry in self.rotten.items() if first_index <= at < end}


def make_disks(conditions: Conditions) -> dict[str, SimDisk]:
    """Create a disk for each member."""
    kind = KernelDisk if conditions.async_flush else RottingDisk if conditions.rots else SimDisk
    return {member_id: kind() for member_id in conditions.member_ids}
