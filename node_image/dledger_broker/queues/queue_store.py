"""The consume queues that a member keeps: in files, and the newest units in memory.

<folder>/consumequeue/…     the units
<folder>/checkpoint         up to which entry they are on disk

A crash loses the units in memory, and those in files that were not saved. The next start builds
them again, from the checkpoint on.

Methods may block unless they say that they do not. One thread at a time adds units, whether to
files or to memory; another one may write meanwhile what is in memory, a third one may make a save
durable, and several may read.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Self

from dledger_broker.errors import QueueFilesError
from dledger_broker.queues import checkpoint
from dledger_broker.queues.builder import (
    QueueChanges,
    QueueId,
    Run,
    changes_of,
    quick_changes_of,
)  # fmt: skip
from dledger_broker.queues.checkpoint import Mark
from dledger_broker.queues.files import QueueFiles, ReadCached, Reading
from dledger_broker.queues.unwritten import UnwrittenUnits
from dledger_broker.state.broker_state import Entry
from dledger_formats.rocketmq.consume_queue import FILE_BYTES, FOLDER, Unit

SAVE_ENTRIES: Final = 64 * 1024
"""After so many entries, or two seconds, the caller should save."""


class Save(NamedTuple):
    """What is written, and must be made durable."""

    mark: Mark
    """The last entry whose units are written."""
    paths: Sequence[Path]
    life: int
    """How often the queues had been deleted."""


class QueueStore:
    """Units of all messages up to `built_index`."""

    def __init__(self, folder: Path, files: QueueFiles, built_index: int) -> None:
        self._folder = folder
        self._files = files
        self._unwritten = UnwrittenUnits()
        self.built_index = built_index
        """Index of the last entry that was added; the next batch begins with the one after."""
        self.saved_index = built_index
        """Index up to which the units survive a crash, or are not needed."""
        self._mark: Mark | None = None
        """The mark of the last entry that was added."""
        self._life = 0
        """How often the queues were deleted, to be built again."""
        self._checkpointing = threading.Lock()
        """Held while the checkpoint changes: it must not say that deleted queues are there."""

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        begin_index: int,
        mark_of: Callable[[int], Mark | None],
        file_bytes: int = FILE_BYTES,
        reading: Reading = nullcontext,
    ) -> Self:
        """Open the queues of a log that begins with `begin_index`, and go on where they end.

        `mark_of` returns the mark of an entry of this log, None if the log has no such entry. If
        the checkpoint is missing or belongs to another log, all queues are deleted, to be built
        from the first entry on. For `reading` see `QueueFiles`. Raises QueueFilesError.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise QueueFilesError(f"cannot make {folder}: {error}") from error
        files = QueueFiles(folder / FOLDER, file_bytes=file_bytes, reading=reading)
        mark = checkpoint.load(folder)
        if mark is not None and mark == mark_of(mark.index):
            return cls(folder, files, mark.index)
        checkpoint.remove(folder)
        files.delete_all()
        return cls(folder, files, begin_index - 1)

    def restart(self, begin_index: int) -> None:
        """Delete all queues, to build them from the entry `begin_index`. Raises QueueFilesError."""
        with self._checkpointing:
            self._life += 1
            checkpoint.remove(self._folder)
        self._mark = None  # before what may fail: nothing of the old queues is saved any more
        self._unwritten.clear()
        self._files.delete_all()
        self.built_index = self.saved_index = begin_index - 1

    def skip_to(self, begin_index: int) -> None:
        """Go on with the entry `begin_index`: the log no longer has those before it."""
        self.built_index = max(self.built_index, begin_index - 1)

    @property
    def unsaved_entries(self) -> int:
        """Entries, of all kinds, that were added since the last save."""
        return 0 if self._mark is None else self._mark.index - self.saved_index

    @property
    def unwritten_units(self) -> int:
        """Units that are in memory only."""
        return self._unwritten.count

    def add(self, entries: Sequence[Entry], last: Mark) -> QueueChanges:
        """Write the units of committed entries: those after `built_index`, up to `last`.

        `entries` leaves out entries that leaders write for themselves; `last` may be one of those.
        Returns what was written. Raises NotABrokerLogError, and QueueFilesError; the batch may then
        be added once more.
        """
        assert last.index > self.built_index
        changes = changes_of(entries)
        for topic in changes.deleted:  # first: that makes room on a full disk
            self._files.delete_topic(topic)
            self._unwritten.drop(topic)
        self.write()
        self._unwritten.clear()
        for queue, runs in changes.runs.items():
            for run in runs:
                self._files.write(queue, *run)
        self.built_index, self._mark = last.index, last
        return changes

    def keep(self, entries: Sequence[Entry], last: Mark) -> QueueChanges | None:
        """Add entries as `add` does, but in memory, quickly and without blocking.

        Returns None, and does nothing, if files must change, it would take long, or too much is in
        memory.
        """
        assert last.index > self.built_index
        changes = quick_changes_of(entries)
        if changes is None or not self._unwritten.fits(changes):
            return None
        self._unwritten.add(changes)
        self.built_index, self._mark = last.index, last
        return changes

    def write(self) -> list[tuple[QueueId, Run]]:
        """Write what is in memory, and return it for `forget`. Raises QueueFilesError."""
        taken = self._unwritten.taken()
        for queue, run in taken:
            self._files.write(queue, *run)
        return taken

    def begin_save(self) -> tuple[list[tuple[QueueId, Run]], Save | None]:
        """Write what is in memory, and return it for `forget`, and what `end_save` makes durable;
        None if everything is.

        The last save must have ended. Raises QueueFilesError.
        """
        mark = self._mark  # first: units may be added meanwhile
        if mark is None or mark.index <= self.saved_index:
            return [], None
        return self.write(), Save(mark, self._files.take_unsynced(), self._life)

    def end_save(self, save: Save) -> None:
        """Make a save durable, then the checkpoint. This may take long: a file for each queue.

        Any thread may call this, while more units are added. Raises QueueFilesError.
        """
        self._files.sync(save.paths)
        with self._checkpointing:
            if save.life == self._life:
                checkpoint.save(self._folder, save.mark)
                self.saved_index = save.mark.index

    def save(self) -> list[tuple[QueueId, Run]]:
        """Begin and end a save; return what was written, for `forget`. Raises QueueFilesError."""
        written, save = self.begin_save()
        if save is not None:
            self.end_save(save)
        return written

    def forget(self, written: list[tuple[QueueId, Run]]) -> None:
        """Remove written units from memory.

        Only the thread that adds units may call it, and none may have been added to files since
        they were written. Does not block.
        """
        self._unwritten.forget(written)

    def trim(self, begin_pos: int) -> Iterator[int]:
        """See `QueueFiles.trim`. Between two queues, the same thread may do anything else."""
        return self._files.trim(begin_pos)

    def units(self, topic: str, queue_id: int, first_unit: int, count: int) -> list[Unit]:
        """Return up to `count` units of a queue, fewer at the end of a file or before a hole.

        A unit is a hint: the reader compares it with the record. Raises QueueFilesError.
        """
        queue = QueueId(topic, queue_id)
        return self._with_newest(queue, first_unit, count, self._files.read) or []

    def cached_units(
        self, queue: QueueId, first_unit: int, count: int, read: ReadCached
    ) -> list[Unit] | None:
        """Return units as `units` does if `read` finds them in the page cache, else None; does not
        block.
        """
        return self._with_newest(
            queue, first_unit, count, partial(self._files.read_cached, read=read)
        )

    def _with_newest(
        self,
        queue: QueueId,
        first_unit: int,
        count: int,
        read: Callable[[QueueId, int, int], list[Unit] | None],
    ) -> list[Unit] | None:
        """Return units that `read` finds in files, and those after them that are in memory."""
        # Memory first: what a thread writes meanwhile is then in both, instead of in neither.
        newest = self._unwritten.find(queue, first_unit, count)
        if newest is None:
            return read(queue, first_unit, count)
        before = newest.first_unit - first_unit
        units = read(queue, first_unit, before) if before else []
        return units + newest.units if units is not None and len(units) == before else units

    def close(self) -> None:
        """Close the files, without saving."""
        self._files.close()
