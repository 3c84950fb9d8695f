"""The consume queues that a member keeps. All methods may block; one thread calls those that write.

<folder>/consumequeue/…     the units
<folder>/checkpoint         up to which entry they are on disk
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self

from dledger_broker.errors import QueueFilesError
from dledger_broker.queues import checkpoint
from dledger_broker.queues.builder import QueueChanges, QueueId, changes_of
from dledger_broker.queues.checkpoint import Mark
from dledger_broker.queues.files import QueueFiles, ReadCached
from dledger_broker.state.broker_state import Entry
from dledger_formats.rocketmq.consume_queue import FILE_BYTES, FOLDER, Unit

SAVE_ENTRIES: Final = 64 * 1024
"""After so many entries, or two seconds, the caller should save."""


class QueueStore:
    """Units of all messages up to `built_index`."""

    def __init__(self, folder: Path, files: QueueFiles, built_index: int) -> None:
        self._folder = folder
        self._files = files
        self.built_index = built_index
        """Index of the last entry that was added; the next batch begins with the one after."""
        self.saved_index = built_index
        """Index up to which the units survive a crash, or are not needed."""
        self.unsaved_entries = 0
        """Entries, of all kinds, since the last save."""
        self._mark: Mark | None = None

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        begin_index: int,
        mark_of: Callable[[int], Mark | None],
        file_bytes: int = FILE_BYTES,
    ) -> Self:
        """Open the queues of a log that begins with `begin_index`, and go on where they end.

        `mark_of` returns the mark of an entry of this log, None if the log has no such entry. If
        the checkpoint is missing or belongs to another log, all queues are deleted, to be built
        from the first entry on. Raises QueueFilesError.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise QueueFilesError(f"cannot make {folder}: {error}") from error
        files = QueueFiles(folder / FOLDER, file_bytes=file_bytes)
        mark = checkpoint.load(folder)
        if mark is not None and mark == mark_of(mark.index):
            return cls(folder, files, mark.index)
        checkpoint.remove(folder)
        files.delete_all()
        return cls(folder, files, begin_index - 1)

    def restart(self, begin_index: int) -> None:
        """Delete all queues, to build them from the entry `begin_index`. Raises QueueFilesError."""
        checkpoint.remove(self._folder)
        self._files.delete_all()
        self.built_index = self.saved_index = begin_index - 1
        self.unsaved_entries, self._mark = 0, None

    def skip_to(self, begin_index: int) -> None:
        """Go on with the entry `begin_index`: the log no longer has those before it."""
        self.built_index = max(self.built_index, begin_index - 1)

    def add(self, entries: Sequence[Entry], last: Mark) -> QueueChanges:
        """Write the units of committed entries: those after `built_index`, up to `last`.

        `entries` leaves out entries that leaders write for themselves; `last` may be one of those.
        Returns what was written. Raises NotABrokerLogError, and QueueFilesError; the batch may then
        be added once more.
        """
        assert last.index > self.built_index
        changes = changes_of(entries)
        for topic in changes.deleted:
            self._files.delete_topic(topic)
        for queue, runs in changes.runs.items():
            for run in runs:
                self._files.write(queue, *run)
        self.unsaved_entries += last.index - self.built_index
        self.built_index, self._mark = last.index, last
        return changes

    def save(self) -> None:
        """Make all units durable, then the checkpoint. Raises QueueFilesError."""
        if self._mark is not None:
            self._files.sync()
            checkpoint.save(self._folder, self._mark)
            self.saved_index = self._mark.index
            self.unsaved_entries, self._mark = 0, None

    def units(self, topic: str, queue_id: int, first_unit: int, count: int) -> list[Unit]:
        """Return up to `count` units of a queue, fewer at the end of a file or before a hole.

        A unit is a hint: the reader compares it with the record. Raises QueueFilesError.
        """
        return self._files.read(QueueId(topic, queue_id), first_unit, count)

    def cached_units(
        self, queue: QueueId, first_unit: int, count: int, read: ReadCached
    ) -> list[Unit] | None:
        """Return the same if `read` finds them in the page cache, else None; does not block."""
        return self._files.read_cached(queue, first_unit, count, read)

    def close(self) -> None:
        """Close the files, without saving."""
        self._files.close()
