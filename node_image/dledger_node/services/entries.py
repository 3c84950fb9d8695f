"""Read entries in the form in which clients receive them."""

from typing import Final

from dledger_formats.protocol.entry import DLedgerEntry
from dledger_node.store.log.log_store import LogStore

READ_BYTES_MAX: Final = 1 << 20
"""Bytes of bodies in an answer that holds more than one entry."""


def read_entries(
    store: LogStore, first_index: int, last_index: int, max_size: int
) -> list[DLedgerEntry]:
    """Read entries from `first_index` to at most `last_index`.

    The first one is always read. Others follow while all bodies together hold at most `max_size`
    and READ_BYTES_MAX bytes. Raises StoreDamagedError.
    """
    entries: list[DLedgerEntry] = []
    room_bytes = min(max_size, READ_BYTES_MAX)
    for index in range(first_index, last_index + 1):
        header, body = store.entry(index)
        room_bytes -= len(body)
        if entries and room_bytes < 0:
            break
        entries.append(DLedgerEntry.from_disk(header, body))
    return entries
