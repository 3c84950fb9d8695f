"""The format of an export: what is decoded, and what is refused."""

import asyncio
from pathlib import Path

import pytest

from dledger_client.exports.reading import ExportDecoder, resume_point, verify_file
from dledger_client.exports.records import (
    CutExportError,
    ExportedEntry,
    ExportError,
    Head,
    pack_end,
    pack_entries,
    pack_head,
)
from dledger_client.exports.writing import ExportWriter
from dledger_formats.log import disk
from dledger_formats.protocol.entry import DLedgerEntry

BODIES = [b"", b"hello", bytes(range(256)), b"x" * 5000]
FIRST = 7


def entry(index: int, body: bytes, magic: int = disk.NORMAL) -> DLedgerEntry:
    return DLedgerEntry(
        body=body, body_crc=0, chain_crc=0, channel=index << 16, index=index, magic=magic,
        pos=0, size=48 + len(body), term=index // 2,
    )  # fmt: skip


ENTRIES = [
    entry(FIRST, b"", disk.NOOP),
    *(entry(n, body) for n, body in enumerate(BODIES, FIRST + 1)),
]
EXPECTED = [ExportedEntry(e.magic, e.index, e.term, e.channel, e.body) for e in ENTRIES]


def export() -> bytes:
    head, checksum = pack_head(Head(group="g", first_index=FIRST))
    records, checksum = pack_entries(ENTRIES, checksum)
    return head + records + pack_end(FIRST + len(ENTRIES), checksum)


def decoded(raw: bytes, piece_bytes: int) -> list[ExportedEntry]:
    decoder = ExportDecoder("x")
    found = []
    for at in range(0, len(raw), piece_bytes):
        found += decoder.feed(raw[at : at + piece_bytes])
    decoder.finish()
    return found


@pytest.mark.parametrize("piece_bytes", [1, 24, 25, 26, 1000, 1 << 20])
def test_pieces_of_any_size_give_the_same_entries(piece_bytes: int) -> None:
    assert decoded(export(), piece_bytes) == EXPECTED


def test_every_flipped_byte_is_refused() -> None:
    raw = export()
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= 0x41
        with pytest.raises(ExportError):
            decoded(bytes(damaged), len(raw))


def test_every_cut_is_refused() -> None:
    raw = export()
    for end in range(len(raw)):
        with pytest.raises(ExportError):
            decoded(raw[:end], len(raw))


def test_a_damaged_record_is_named() -> None:
    raw = bytearray(export())
    raw[raw.index(b"hello")] ^= 1

    with pytest.raises(ExportError, match="record 3 of x, where entry 9 belongs, is damaged"):
        decoded(bytes(raw), 1 << 20)


def test_the_entries_before_damage_are_not_lost() -> None:
    raw = bytearray(export())
    raw[raw.index(b"hello")] ^= 1
    decoder = ExportDecoder("x")

    assert decoder.feed(bytes(raw)) == EXPECTED[:2]
    assert "record 3 of x" in str(decoder.damage)
    with pytest.raises(ExportError, match="record 3 of x"):
        decoder.finish()


def test_two_writers_do_not_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "export"
    path.write_bytes(export())
    first = asyncio.run(ExportWriter.to_file(path))

    with pytest.raises(ExportError, match="another process writes"):
        asyncio.run(ExportWriter.to_file(path))

    first.close()
    asyncio.run(ExportWriter.to_file(path)).close()


def test_a_cut_is_named_by_the_entry_before_it() -> None:
    with pytest.raises(CutExportError, match="cut after entry 10: record 5"):
        decoded(export()[:-1000], 1 << 20)


def test_records_of_another_export_are_refused() -> None:
    head, checksum = pack_head(Head(group="g", first_index=0))
    records, _ = pack_entries([entry(0, b"a"), entry(1, b"b")], checksum)
    other_head, other = pack_head(Head(group="other", first_index=0))
    other_records, other = pack_entries([entry(0, b"a"), entry(1, b"c")], other)
    half = len(records) // 2

    with pytest.raises(ExportError, match="record 2"):
        decoded(head + records[:half] + other_records[half:] + pack_end(2, other), 1 << 20)
    assert other_head != head


def test_bytes_after_the_end_are_refused() -> None:
    with pytest.raises(ExportError, match="bytes after its end, entry 11"):
        decoded(export() + b"\0", 1 << 20)


@pytest.mark.parametrize("raw", [b"hello", b"DLEXPORX" + bytes(100)])
def test_other_files_are_no_exports(raw: bytes) -> None:
    with pytest.raises(ExportError, match="x is not an export"):
        decoded(raw, 1 << 20)


@pytest.mark.parametrize("cut_bytes", [0, 10, 3000])
async def test_a_writer_goes_on_after_the_last_whole_entry(tmp_path: Path, cut_bytes: int) -> None:
    path = tmp_path / "export"
    path.write_bytes(export()[: -cut_bytes or None])

    writer = await ExportWriter.to_file(path)
    assert writer.next_index is not None
    await writer.begin(Head(group="g", first_index=writer.next_index))
    if rest := [one for one in ENTRIES if one.index >= writer.next_index]:
        await writer.write(rest)
    await writer.write([entry(FIRST + 5, b"more")])
    await writer.end()
    writer.close()

    raw = path.read_bytes()
    await verify_file(path)
    assert decoded(raw, 1 << 20)[:-1] == EXPECTED
    assert decoded(raw, 1 << 20)[-1] == ExportedEntry(1, 12, 6, 12 << 16, b"more")


def test_a_file_is_not_changed_before_the_first_write(tmp_path: Path) -> None:
    path = tmp_path / "export"
    path.write_bytes(export()[:-10])

    asyncio.run(ExportWriter.to_file(path)).close()

    assert path.read_bytes() == export()[:-10]


def test_an_export_that_writes_nothing_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "export"

    asyncio.run(ExportWriter.to_file(path)).close()

    assert not path.exists()


async def test_an_export_of_another_group_is_not_extended(tmp_path: Path) -> None:
    path = tmp_path / "export"
    path.write_bytes(export())
    writer = await ExportWriter.to_file(path)

    with pytest.raises(ExportError, match="holds entries of g, not of other"):
        await writer.begin(Head(group="other", first_index=12))
    writer.close()
    assert path.read_bytes() == export()


def test_a_damaged_export_is_not_extended(tmp_path: Path) -> None:
    path = tmp_path / "export"
    path.write_bytes(export().replace(b"hello", b"hallo"))

    with pytest.raises(ExportError, match="record 3"):
        asyncio.run(resume_point(path))
