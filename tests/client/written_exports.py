"""Exports that tests write themselves."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from dledger_client.exports.records import Head
from dledger_client.exports.writing import ExportWriter
from dledger_formats.log import disk
from dledger_formats.protocol.entry import DLedgerEntry, entries_from_disk


def entry(index: int, body: bytes, magic: int = disk.NORMAL) -> DLedgerEntry:
    size = disk.ENTRY_HEADER_SIZE + len(body)
    crc = disk.body_crc(body)
    header = disk.EntryHeader(magic, size, index, 1, 0, 0, 0, crc, len(body))
    return next(entries_from_disk(disk.ENTRY_HEADER.pack(*header) + body))


def write_export(path: Path, entries: Sequence[DLedgerEntry]) -> Path:
    """Write an export that begins with the first of these entries."""

    async def write() -> None:
        writer = await ExportWriter.to_file(path)
        await writer.begin(Head(group="old", first_index=entries[0].index))
        await writer.write(entries)
        await writer.end()
        writer.close()

    asyncio.run(write())
    return path
