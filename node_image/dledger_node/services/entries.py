"""Read entries in the form in which clients receive them."""

from typing import Final

from dledger_formats.log.disk import ENTRY_HEADER_SIZE
from dledger_formats.protocol.entry import DLedgerEntry, entries_from_disk
from dledger_node.store.log.log_store import LogStore

ENTRIES_MAX: Final = 512
"""Entries in one answer. Reading, checking and encoding one takes about 2 µs, besides its body."""
STORED_BYTES_MAX: Final = 128 << 10
"""Stored bytes of an answer that holds more than one entry. With ENTRIES_MAX, this bounds the
encoded answer at 256 KiB: an entry's JSON has 160 bytes, and its body grows by a third in base64.
"""


def read_entries(
    store: LogStore, first_index: int, last_index: int, max_size: int
) -> list[DLedgerEntry]:
    """Read entries from `first_index` to at most `last_index`, and verify all their checksums.

    The first one is always read. Others follow while all bodies together hold at most `max_size`
    bytes, and the bounds above permit it. Raises StoreDamagedError.
    """
    count_max = ENTRIES_MAX if max_size > 0 else 1
    last_index = min(last_index, first_index + count_max - 1)
    stored_bytes = min(STORED_BYTES_MAX, max_size + count_max * ENTRY_HEADER_SIZE)
    runs = store.checked_range(first_index, last_index, stored_bytes)
    entries = [entry for run in runs for entry in entries_from_disk(run)]
    room_bytes = max_size
    for count, entry in enumerate(entries):
        room_bytes -= len(entry.body)
        if count and room_bytes < 0:
            return entries[:count]
    return entries
