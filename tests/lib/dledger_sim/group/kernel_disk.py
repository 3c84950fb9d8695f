"""A disk under AsyncFlush: writes in the kernel count, and survive the death of a process.

Only a power loss removes them. The strike `power_loss` copies the disk, as if it were the last
flush, and rolls the log back to the copy; term and vote are always flushed.
"""

from dataclasses import dataclass

from dledger_sim.group.disk import Entry, SimDisk


@dataclass(slots=True)
class KernelDisk(SimDisk):
    """A disk whose writes are kept by the kernel at once."""

    _unflushed: bool = False
    """Whether the kernel holds writes that are in no flush yet."""

    in_sync: bool = False
    """Whether the member runs with SyncFlush, and so confirms only flushed entries."""
    flushed_count: int = 0
    """Number of entries that are on the disk; a start flushes the whole log."""

    def starts(self, *, in_sync: bool) -> bool:
        """See `SimDisk`."""
        self.in_sync, self.flushed_count = in_sync, len(self.durable)
        return not in_sync

    @property
    def has_unflushed(self) -> bool:
        """See `SimDisk`."""
        return self._unflushed

    def begin_flush(self) -> None:
        """See `SimDisk`."""
        SimDisk.begin_flush(self)
        self._unflushed = False

    def finish_flush(self) -> tuple[int, int] | None:
        """See `SimDisk`."""
        flushed = SimDisk.finish_flush(self)
        if flushed is not None:
            self.flushed_count = max(self.flushed_count, flushed[0] + 1)
        return flushed

    def append(self, entry: Entry) -> None:
        """See `SimDisk`."""
        SimDisk.append(self, entry)
        self.pending.clear()
        self.durable.append(entry)
        self._unflushed = True

    def truncate(self, first_index: int) -> None:
        """See `SimDisk`."""
        SimDisk.truncate(self, first_index)
        self.pending.clear()
        del self.durable[first_index:]
        self.flushed_count = min(self.flushed_count, first_index)
        self._unflushed = True
