"""A disk on which entries of the log rot.

One that has rotted reads as another, with which its checksums disagree; but only where its member
reads from the disk. What its present life has written, or verified at its start, it reads from the
page cache, which rot does not reach. `durable` and `cached` hold what was written, for the judge.

Rot is let be where a real store could not tell it from a torn tail: behind its last checkpoint. To
lose those entries without a word is what an older disk does (`OlderDisks`).
"""

from dataclasses import dataclass
from typing import Final

from dledger_node.errors import Damage, StoreDamagedError
from dledger_sim.group.conditions import Conditions
from dledger_sim.group.disk import Entry, SimDisk, chained

ROTTEN_BODY: Final = 1 << 50
"""With its index, a body that nobody has appended."""
SEGMENT_ENTRIES: Final = 3
"""A log is set aside by whole segments."""
MARGIN_ENTRIES: Final = 2
"""So many of the entries that the checkpoint calls durable are verified at a start all the same."""


@dataclass(slots=True)
class RottingDisk(SimDisk):
    """See above."""

    checkpoint_end: int = -1
    """Up to here the last checkpoint calls the log durable."""
    seen_index: int = 0
    """From here on, this life has written or verified what it reads."""

    def rot(self, first_index: int, end: int) -> None:
        """Let entries that the checkpoint calls durable become others."""
        assert self.begin_index <= first_index < end <= self.checkpoint_end + 1
        for index in range(first_index, end):
            self.rotten[index] = self.cached[index]._replace(body=ROTTEN_BODY + index)

    @property
    def verified_from(self) -> int:
        """From here on a start verifies the log."""
        return max(self.begin_index, self.checkpoint_end + 1 - MARGIN_ENTRIES)

    def verify(self, first_index: int, entries: list[Entry]) -> None:
        """Hold entries as they were read against their checksums. StoreDamagedError."""
        for index, entry in enumerate(entries, first_index):
            if chained(self.cached[:index], entry.term, entry.body) != entry:
                self.damaged = True
                raise StoreDamagedError(f"entry {index} has rotted", Damage.BAD_ENTRY, index)

    def set_aside(self) -> None:
        """Keep the segments before the first damage; term and vote are sound. Its member joins."""
        self.set_aside_count += 1
        self.lose(1.0)

    # -- as any disk, and what becomes of the rot --------------------------------------------------

    def open(self) -> int:
        """See `SimDisk`; recovery saves a checkpoint."""
        self.seen_index = self.verified_from
        self.checkpoint_end = len(self.durable) - 1
        return SimDisk.open(self)

    def read(self, first_index: int, end: int) -> list[Entry]:
        """See `SimDisk`. StoreDamagedError."""
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
        """See `SimDisk`; of what has rotted nothing is kept, nor of what comes behind it."""
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
        """Forget those that are not there any more."""
        self.rotten = {at: entry for at, entry in self.rotten.items() if first_index <= at < end}


def make_disks(conditions: Conditions) -> dict[str, SimDisk]:
    """A disk for each member."""
    kind = RottingDisk if conditions.rots else SimDisk
    return {member_id: kind() for member_id in conditions.member_ids}
