"""The producers of a log: their table, kept true while the log grows and is cut, and its file.

Whatever is written to the log passes here, on the thread that writes. So the table is complete when
a member is elected, before its first entry, and an entry that is cut is forgotten with it.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dledger_formats.log.channels import ChannelEntry
from dledger_node.errors import StoreDamagedError
from dledger_node.store.derived import producers_file
from dledger_node.store.derived.producers import Producers
from dledger_node.store.derived.producers_file import Image
from dledger_node.store.log.block import Block
from dledger_node.store.log.files import LogFiles
from dledger_node.store.log.writer import LogWriter

SAVE_ENTRIES: Final = 1 << 16
SAVE_BYTES: Final = 128 << 20
"""So many entries, or bytes, are read at a start, at most, and those of the last second or so."""
EMPTY_SHARE: Final = 8
"""A file without producers takes no time to write, so it is written so many times as often."""
SCAN_BYTES: Final = 4 << 20
"""What is read at a time."""
CLOSE_ENTRIES: Final = 1024
"""So few are not worth a file when a log without producers is closed."""


class LogProducers:
    """What `LogStore` and its callers know of producers."""

    def __init__(self, folder: Path, files: LogFiles, log: LogWriter) -> None:
        self.table = Producers()
        """Of the log up to its end, once `restore` was called."""
        self.saved_index = -1
        """The file is that of the log up to here; -1 when there is none."""
        self._folder = folder
        self._files = files
        self._log = log
        self._saved_pos = 0
        self._save_lock = threading.Lock()

    def restore(self) -> None:
        """Make the table from its file and the log behind it; without one, from all of the log.

        Blocks. Of a log that is damaged, what lies behind the damage counts: who registered before
        is unknown then, as if that had been removed.
        """
        image = producers_file.load(self._folder)
        if image is not None and self._is_of_this_log(image):
            self.table = Producers(image.producers, image.index)
            self.saved_index = image.index
        else:
            self.table = Producers()
            self.saved_index, self._saved_pos = -1, 0
        index = max(self.saved_index + 1, self._log.begin_index)
        while index <= self._log.end_index:
            index = self._note_from(index)

    def note_appends(self, first_index: int, magic: int, channels: Sequence[int]) -> None:
        """Note a leader's batch, which is written."""
        for index, channel in enumerate(channels, first_index):
            if channel:
                self.table.note(ChannelEntry(index, magic, channel))

    def note_block(self, block: Block, first_index: int) -> None:
        """Note a block's entries from `first_index` on, which are written."""
        for run in block.runs:
            for entry in run.channels:
                if entry.index >= first_index:
                    self.table.note(entry)

    def cut(self, first_index: int) -> None:
        """Forget what was cut from the log."""
        if not self.table.take_back(first_index):
            self.restore()

    def image_due(self, before_index: int | None = None) -> Image | None:
        """What is to be saved now; None when the file is good enough, or cannot be made now.

        It must be good enough for a log that begins with `before_index`.
        """
        settled_index = self.table.settled_index
        needs = before_index is not None and self.saved_index < before_index - 1
        share = 1 if len(self.table) else EMPTY_SHARE
        grown = (
            settled_index - self.saved_index >= SAVE_ENTRIES // share
            or self._log.end_pos - self._saved_pos >= SAVE_BYTES // share
        )
        return self._image() if needs or grown else None

    def save(self, image: Image) -> None:
        """Save it; blocks, and may be called in any thread. StoreError, StoreFullError."""
        with self._save_lock:
            if image.index >= self.saved_index:  # or a thread has come late with it
                producers_file.save(self._folder, image)
                self.saved_index = image.index

    def close(self) -> None:
        """Save what the next start would have to read again; blocks."""
        unsaved = self.table.settled_index - self.saved_index
        if unsaved >= CLOSE_ENTRIES or (unsaved > 0 and len(self.table) > 0):
            image = self._image()
            if image is not None:
                self.save(image)

    def _note_from(self, index: int) -> int:
        """Note some entries; returns the first that is left."""
        last_index = index
        try:
            last_index = self._files.last_within(index, self._log.end_index, SCAN_BYTES)
            for entry in self._files.channels(index, last_index):
                self.table.note(entry)
        except StoreDamagedError as error:
            self.table = Producers()
            return max(index, error.index or index) + 1
        except IndexError:  # an index unit names a place where no file is
            self.table = Producers()
        return last_index + 1

    def _image(self) -> Image | None:
        index = self.table.settled_index
        if not self._log.begin_index <= index <= self._log.end_index:
            return None
        producers = self.table.settled()
        if producers is None:
            return None
        header = self._files.header(index)
        self._saved_pos = header.pos
        return Image(index=index, term=header.term, chain_crc=header.chain_crc, producers=producers)

    def _is_of_this_log(self, image: Image) -> bool:
        """Whether the log was once the image's, and goes on without a gap."""
        if image.index == self._log.begin_index - 1:
            return True  # that entry is gone
        if not self._log.begin_index <= image.index <= self._log.end_index:
            return False
        try:
            header = self._files.header(image.index)
        except (StoreDamagedError, IndexError):
            return False
        return (header.term, header.chain_crc) == (image.term, image.chain_crc)
