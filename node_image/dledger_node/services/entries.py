"""Read entries in the form in which clients receive them.

The event loop reads what is in the page cache, a thread everything else.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from dledger_formats.log.disk import ENTRY_HEADER_SIZE
from dledger_formats.protocol.entry import DLedgerEntry, entries_from_disk
from dledger_node.errors import StoreDamagedError
from dledger_node.limited_log import LineBudget
from dledger_node.remoting.connection_views import Reader
from dledger_node.remoting.read_turns import ReadTurns
from dledger_node.services.disk_reads import DiskReads
from dledger_node.store.log.log_store import LogStore
from dledger_node.store.log.stored_range import RangeMovedError

logger = logging.getLogger(__name__)

ENTRIES_MAX: Final = 512
"""Entries in one answer. Reading, checking and encoding one takes about 2 µs, besides its body."""
STORED_BYTES_MAX: Final = 128 << 10
"""Stored bytes of an answer that holds more than one entry. With ENTRIES_MAX, this bounds the
encoded answer at 256 KiB: an entry's JSON has 160 bytes, and its body grows by a third in base64.
"""

Then: TypeAlias = Callable[[list[DLedgerEntry] | None], None]
"""Takes the entries, or None if they cannot be read: they are damaged, or were removed."""


class _Wanted(NamedTuple):
    """A read of a connection."""

    reader: Reader
    first_index: int
    last_index: int
    max_size: int


class EntryReads:
    """Reads committed entries for connections, in the order of each connection's requests."""

    def __init__(self, store: LogStore, turns: ReadTurns, disk: DiskReads) -> None:
        self._store = store
        self._turns = turns
        self._disk = disk
        self._lines = LineBudget(asyncio.get_running_loop().time)

    def read(
        self, reader: Reader, first_index: int, last_index: int, max_size: int, then: Then
    ) -> None:
        """Call `then` with the result of `read_entries`. Call this only in the reader's turn.

        `then` is called at once if the page cache has the entries. Otherwise the reader's next
        reads wait for a thread, and the log may change before `then` is called.
        """
        self._read(_Wanted(reader, first_index, last_index, max_size), then)

    def _read(self, wanted: _Wanted, then: Then) -> None:
        try:
            entries = read_entries(self._store, *wanted[1:], wait=False)
        except (StoreDamagedError, RangeMovedError):
            then(None)  # the store records the damage that it found, and has it mended
            return
        if entries is not None:
            then(entries)
            return
        self._turns.pause(wanted.reader)
        self._disk.read(
            wanted.reader,
            partial(read_entries, self._store, *wanted[1:], wait=True),
            partial(self._ended, wanted, then),
            partial(then, None),
        )

    def _ended(
        self, wanted: _Wanted, then: Then, future: "asyncio.Future[list[DLedgerEntry] | None]"
    ) -> None:
        reader = wanted.reader
        try:
            entries = future.result()
        except StoreDamagedError:
            entries = None
        except RangeMovedError:
            self._turns.go_on(reader, partial(self._read, wanted, then))
            return
        except Exception:  # unexpected, but the client must get an answer
            admitted = self._lines.admit("unread")
            if admitted is not None:
                logger.exception(
                    "cannot read the entries from %d on%s", wanted.first_index, admitted
                )
            entries = None
        if reader.unread_since_s is None:
            self._turns.go_on(reader, partial(then, entries))
        else:  # these entries must not wait in memory; they are in the page cache by now
            self._turns.go_on(reader, partial(self._read, wanted, then))


def read_entries(
    store: LogStore, first_index: int, last_index: int, max_size: int, *, wait: bool
) -> list[DLedgerEntry] | None:
    """Read entries from `first_index` to at most `last_index`, and verify all their checksums.

    The first one is always read. Others follow while all bodies together hold at most `max_size`
    bytes, and the bounds above permit it. Returns None if that takes a read of the disk and `wait`
    is false. Raises StoreDamagedError, RangeMovedError.
    """
    count_max = ENTRIES_MAX if max_size > 0 else 1
    last_index = min(last_index, first_index + count_max - 1)
    stored_bytes = min(STORED_BYTES_MAX, max_size + count_max * ENTRY_HEADER_SIZE)
    runs = store.checked_range(first_index, last_index, stored_bytes, wait=wait)
    if runs is None:
        return None
    entries = [entry for run in runs for entry in entries_from_disk(run)]
    room_bytes = max_size
    for count, entry in enumerate(entries):
        room_bytes -= len(entry.body)
        if count and room_bytes < 0:
            return entries[:count]
    return entries
