"""The table of producers of a simulated log, and its file.

The table replaces `LogProducers` of `dledger_node.store.derived`: it is the same table, which
records written entries and undoes truncated ones. The file is replaced as a whole, and belongs to
the log only if the log has the entry that the file names.
"""

import copy
from typing import Final, NamedTuple

from dledger_node.store.derived.producer import Producer
from dledger_node.store.derived.producers import Producers
from dledger_sim.broker.bodies import Bodies
from dledger_sim.group.disk import Entry, SimDisk

SAVE_RATE: Final = 0.02
"""Probability that a turn with work saves the file."""


class Image(NamedTuple):
    """The file: the producers as of one entry of one log."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not needed here
    entry: Entry
    producers: list[Producer]


class ProducersFile:
    """The table's file on a disk, which survives the crashes of its member."""

    image: Image | None = None


class SimProducers:
    """The table of one life of a member."""

    def __init__(self, disk: SimDisk, bodies: Bodies, file: ProducersFile) -> None:
        self.table = Producers()
        self._disk = disk
        self._bodies = bodies
        self._file = file
        self._noted = 0
        """Number of entries of the log that the table includes."""
        self.restore()

    def restore(self) -> None:
        """Build the table from the file and the entries after it, or from the whole log."""
        image, log, begin_index = self._file.image, self._disk.cached, self._disk.begin_index
        self.table, self._noted = Producers(), begin_index
        if image is not None and (
            image.index == begin_index - 1
            or (begin_index <= image.index < len(log) and log[image.index] == image.entry)
        ):
            self.table = Producers(copy.deepcopy(image.producers), image.index)
            self._noted = image.index + 1
        self.note()

    def note(self) -> None:
        """Note the entries that were written."""
        log = self._disk.cached
        for run in self._bodies.channels(log, self._noted, len(log)):
            self.table.note(run)
        self._noted = len(log)

    def cut(self, first_index: int) -> None:
        """Forget entries that were cut from the log."""
        self._noted = min(self._noted, first_index)
        if not self.table.undo_from(first_index):
            self.restore()

    def save(self) -> bool:
        """Save the file as of the stable index; return False if that is impossible."""
        index, log = self.table.stable_index, self._disk.cached
        if not self._disk.begin_index <= index < len(log):
            return False
        producers = self.table.stable_copy()
        if producers is not None:
            self._file.image = Image(index, log[index], producers)
        return producers is not None

    def serves(self, begin_index: int) -> bool:
        """Return whether the file suffices for a log that begins here; save it if not."""
        image = self._file.image
        return (image is not None and image.index >= begin_index - 1) or self.save()
