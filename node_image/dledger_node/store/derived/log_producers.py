"""The producers of a log: their table, updated by appends and truncations, and its file.

The thread that writes entries also notes them here. So the table of a new leader is complete before
its first entry, and an entry that is cut from the log is removed from the table as well.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dledger_formats.log.channels import runs_of
from dledger_formats.log.disk import EntryHeader
from dledger_node.errors import StoreDamagedError
from dledger_node.store.derived import producers_file
from dledger_node.store.derived.producers import Producers
from dledger_node.store.derived.producers_file import Image
from dledger_node.store.derived.stable_copy import StableCopy
from dledger_node.store.log.block import Block
from dledger_node.store.log.files import LogFiles
from dledger_node.store.log.writer import LogWriter

SAVE_ENTRIES: Final = 1 << 16
SAVE_BYTES: Final = 128 << 20
"""The file is saved after this many new entries or bytes; this bounds what a start has to read."""
EMPTY_SHARE: Final = 8
"""A table without producers is cheap to save, so it is saved this many times as often."""
SCAN_BYTES: Final = 4 << 20
"""Bytes of the log that are read at a time."""
CLOSE_ENTRIES: Final = 1024
"""A log without producers saves no file at close for fewer new entries than this."""


class Copying:
    """An image that is made in parts, while the log goes on."""

    def __init__(self, copy: StableCopy, index: int, header: EntryHeader) -> None:
        self.parts = copy.parts
        """Copies part after part; see `StableCopy`."""
        self._copy = copy
        self._index, self._header = index, header

    @property
    def image(self) -> Image | None:
        """The image, once all parts are copied; None if the log was cut meanwhile."""
        return None if self._copy.is_void else self.at_once()

    def at_once(self) -> Image:
        """Copy the parts that are left, and return the image."""
        for _ in self.parts():
            pass
        header = self._header
        return Image(
            index=self._index,
            term=header.term,
            chain_crc=header.chain_crc,
            producers=self._copy.producers,
        )


class LogProducers:
    """The table of producers of one log, and its file."""

    def __init__(self, folder: Path, files: LogFiles, writer: LogWriter) -> None:
        self.table = Producers()
        """The table at the end of the log, once `restore` was called."""
        self.saved_index = -1
        """The file holds the table at this entry; -1 if there is no file."""
        self._folder = folder
        self._files = files
        self._writer = writer
        self._saved_pos = 0
        self._save_lock = threading.Lock()

    def restore(self) -> None:
        """Build the table from its file and the entries after it, or from the whole log; blocks.

        In a damaged log only the entries after the damage count: producers that registered before
        it are unknown, as if their entries had been removed.
        """
        image = producers_file.load(self._folder)
        if image is not None and self._is_of_this_log(image):
            self.table = Producers(image.producers, image.index)
            self.saved_index = image.index
        else:
            self.table = Producers()
            self.saved_index, self._saved_pos = -1, 0
        index = max(self.saved_index + 1, self._writer.begin_index)
        while index <= self._writer.end_index:
            index = self._note_from(index)

    def note_appends(self, first_index: int, magic: int, channels: Sequence[int]) -> None:
        """Note a batch that this leader wrote."""
        for run in runs_of(first_index, magic, channels):
            self.table.note(run)

    def note_block(self, block: Block, first_index: int) -> None:
        """Note the written entries of a block from `first_index` on."""
        for run in block.runs:
            for each in run.channels:
                for fresh in each.runs_from(first_index):
                    self.table.note(fresh)

    def cut(self, first_index: int) -> None:
        """Forget entries from `first_index` on, which were cut from the log."""
        if not self.table.undo_from(first_index):
            self.restore()

    def image_due(self, before_index: int | None = None) -> Image | None:
        """Return the image to save now; None if the file is recent enough or no image can be made.

        With `before_index`, the file must serve a log that begins with that entry.
        """
        copying = self.copying_due(before_index)
        return None if copying is None else copying.at_once()

    def copying_due(self, before_index: int | None = None) -> Copying | None:
        """Begin the image that `image_due` returns, to be made in parts.

        None also if none can be made now: entries that may be lost cannot be undone, or the log was
        just replaced. Raises StoreDamagedError if the entry at which it is made is damaged.
        """
        stable_index = self.table.stable_index
        needs = before_index is not None and not self.covers(before_index)
        share = 1 if len(self.table) else EMPTY_SHARE
        grown = (
            stable_index - self.saved_index >= SAVE_ENTRIES // share
            or self._writer.end_pos - self._saved_pos >= SAVE_BYTES // share
        )
        return self._copying() if needs or grown else None

    def covers(self, before_index: int) -> bool:
        """Return whether the file serves a log that begins with this entry."""
        return self.saved_index >= before_index - 1

    def save(self, image: Image) -> None:
        """Save an image, unless a newer one is saved; blocks; any thread may call.

        Raises StoreError, StoreFullError.
        """
        with self._save_lock:
            if image.index >= self.saved_index:
                producers_file.save(self._folder, image)
                self.saved_index = image.index

    def save_at_close(self) -> None:
        """Save the table, so that the next start reads fewer entries; blocks."""
        unsaved = self.table.stable_index - self.saved_index
        if unsaved >= CLOSE_ENTRIES or (unsaved > 0 and len(self.table) > 0):
            copying = self._copying()
            if copying is not None:
                self.save(copying.at_once())

    def _note_from(self, index: int) -> int:
        """Note some entries; return the index of the next one."""
        last_index = index
        try:
            last_index = self._files.last_within(index, self._writer.end_index, SCAN_BYTES)
            for run in self._files.channels(index, last_index):
                self.table.note(run)
        except StoreDamagedError as error:
            self.table = Producers()
            return max(index, error.index or index) + 1
        except IndexError:  # an index unit names a place outside the data files
            self.table = Producers()
        return last_index + 1

    def _copying(self) -> Copying | None:
        index = self.table.stable_index
        if not self._writer.begin_index <= index <= self._writer.end_index:
            return None
        header = self._files.header(index)
        copy = self.table.begin_copy()
        if copy is None:
            return None
        self._saved_pos = header.pos
        return Copying(copy, index, header)

    def _is_of_this_log(self, image: Image) -> bool:
        """Return whether an image was made from this log, without a gap between image and log."""
        if image.index == self._writer.begin_index - 1:
            return True  # its entry was removed and cannot be compared
        if not self._writer.begin_index <= image.index <= self._writer.end_index:
            return False
        try:
            header = self._files.header(image.index)
        except (StoreDamagedError, IndexError):
            return False
        return (header.term, header.chain_crc) == (image.term, image.chain_crc)
