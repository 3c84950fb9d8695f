import json
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.log import disk

GOLDEN = Path(__file__).parent / "golden"
ARCHIVES: list[dict[str, Any]] = json.loads((GOLDEN / "manifest.json").read_text())
MEMBERS = [
    pytest.param(archive, member, id=f"{archive['archive']}-{member}")
    for archive in ARCHIVES
    for member in archive["nodes"]
]
BODIES = [b"", b"a", b"body-1", bytes(range(256)), b"\xff" * 700]


def member_files(archive: dict[str, Any], member: str, folder: str) -> bytes:
    """Return all segments of one kind, concatenated."""
    part = f"/dledger-{member}/{folder}/"
    with tarfile.open(GOLDEN / archive["archive"]) as tar:
        names = sorted(item.name for item in tar if part in item.name and item.isfile())
        return b"".join(tar.extractfile(name).read() for name in names)  # type: ignore[union-attr]


def golden_body(index: int, length: int) -> bytes:
    return bytes((index * 31 + j * 7) & 255 for j in range(length))


def packed(bodies: list[bytes], *, term: int = 3, first_index: int = 0) -> disk.PackedEntries:
    return disk.pack_entries(
        bodies,
        magic=disk.NORMAL,
        first_index=first_index,
        term=term,
        pos=0,
        previous_chain_crc=0,
    )


def test_an_entry_has_the_bytes_that_java_writes() -> None:
    java = bytes.fromhex(
        "00000001 00000036 0000000000000000 0000000000000001 0000000000000000"
        "00000000 00000000 00000000 00000006 626f64792d30"
    )

    header = disk.check_entry(java, 0, len(java), previous_chain_crc=0)

    assert header == (disk.NORMAL, 54, 0, 1, 0, 0, 0, 0, 6)
    assert disk.ENTRY_HEADER.pack(*header) + b"body-0" == java


def test_an_index_unit_has_the_bytes_that_java_writes() -> None:
    java = bytes.fromhex("00000001 0000000000000036 00000036 0000000000000001 0000000000000001")

    assert disk.unpack_index_unit(java, 0) == (disk.NORMAL, 54, 54, 1, 1)


@pytest.mark.parametrize(("archive", "member"), MEMBERS)
def test_every_entry_of_a_java_store_is_read(archive: dict[str, Any], member: str) -> None:
    data = member_files(archive, member, "data")
    found = []
    for _, pos, _, _, _ in archive["entries"]:
        header = disk.check_entry(data, pos, len(data), previous_chain_crc=0)
        body = data[pos + disk.ENTRY_HEADER_SIZE : pos + header.size]
        assert body == golden_body(header.index, len(body))
        found.append([header.index, header.pos, header.term, header.body_size, header.magic])

    assert found == archive["entries"]


@pytest.mark.parametrize(("archive", "member"), MEMBERS)
def test_every_index_unit_of_a_java_store_is_read(archive: dict[str, Any], member: str) -> None:
    index = member_files(archive, member, "index")
    units = [disk.unpack_index_unit(index, at * 32) for at in range(archive["count"])]

    assert [[unit.index, unit.pos, unit.term, unit.size - 48, unit.magic] for unit in units] == (
        archive["entries"]
    )


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive["archive"])
def test_segments_roll_where_java_rolls(archive: dict[str, Any]) -> None:
    end = 0
    blanks = []
    for _, pos, _, body_length, _ in archive["entries"]:
        place = disk.place_entry(48 + body_length, end, archive["data_file_size"])
        if place != end:
            blanks.append([end, place - end])
        assert place == pos
        end = place + 48 + body_length

    assert blanks == archive["blanks"]
    assert end == archive["write_pos"]


def encoded(
    magic: int, index: int, term: int, pos: int, channel: int, chain_crc: int, body: bytes
) -> tuple[bytes, bytes, int]:
    """Encode an entry, its index unit and its chain CRC as docs/disk-format.md describes."""

    def number(value: int, size: int) -> bytes:
        return value.to_bytes(size, "big")

    start, size = number(magic, 4), number(48 + len(body), 4)
    place, which = number(pos, 8), number(index, 8) + number(term, 8)
    before = start + size + which + place + number(channel, 4)
    behind = number(zlib.crc32(body), 4) + number(len(body), 4)
    chain_crc = zlib.crc32(before + bytes(4) + behind, chain_crc)
    entry = before + number(chain_crc, 4) + behind + body
    return entry, start + place + size + which, chain_crc


@given(
    st.lists(
        st.tuples(st.binary(max_size=200), st.integers(0, 2**31 - 1)), min_size=1, max_size=70
    ),
    st.sampled_from(disk.ENTRY_MAGICS),
    st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.integers(0, 2**61),
    st.integers(0, 2**32 - 1),
    st.sampled_from([bytes, bytearray, memoryview]),
)
def test_entries_packed_together_equal_entries_encoded_one_by_one(
    entries: list[tuple[bytes, int]],
    magic: int,
    first_index: int,
    term: int,
    pos: int,
    previous_chain_crc: int,
    buffer: Callable[[bytes], disk.Buffer],
) -> None:
    made = disk.pack_entries(
        [buffer(body) for body, _ in entries],
        magic=magic,
        first_index=first_index,
        term=term,
        pos=pos,
        previous_chain_crc=previous_chain_crc,
        channels=[channel for _, channel in entries],
    )

    data, units, chain_crc = b"", b"", previous_chain_crc
    for index, (body, channel) in enumerate(entries, first_index):
        at = pos + len(data)
        entry, unit, chain_crc = encoded(magic, index, term, at, channel, chain_crc, body)
        data += entry
        units += unit
    assert made == (data, units, chain_crc)


def test_entries_packed_without_channels_have_channel_zero() -> None:
    assert packed(BODIES) == disk.pack_entries(
        BODIES,
        magic=disk.NORMAL,
        first_index=0,
        term=3,
        pos=0,
        previous_chain_crc=0,
        channels=[0] * len(BODIES),
    )


def test_the_chain_of_a_header_can_be_computed_from_the_header_alone() -> None:
    made = packed(BODIES)
    header = disk.unpack_header(made.data, 0)

    assert disk.chain_crc_of(header, 0) == header.chain_crc != 0


@pytest.mark.parametrize(
    ("reason", "offset", "value"),
    [
        ("bad_magic", 0, b"\0\0\0\x03"),
        ("bad_size", 4, b"\0\0\0\x2f"),
        ("bad_size", 44, b"\xff\xff\xff\xff"),
        ("bad_body_crc", 40, b"\0\0\0\x01"),
        ("bad_chain_crc", 36, b"\0\0\0\x01"),
    ],
)
def test_a_damaged_record_error_names_the_wrong_field(
    reason: str, offset: int, value: bytes
) -> None:
    data = bytearray(packed([b"some body"]).data)
    data[offset : offset + len(value)] = value

    with pytest.raises(disk.DamagedRecordError) as raised:
        disk.check_entry(data, 0, len(data), previous_chain_crc=0)

    assert raised.value.reason == reason


@pytest.mark.parametrize(
    ("size", "pos", "place"),
    [
        (92, 0, 0),
        (93, 0, None),
        (48, 44, 44),  # exactly the blank's 8 bytes are left
        (49, 44, 100),
        (48, 199, 200),
        (48, 200, 200),
    ],
)
def test_an_entry_leaves_room_for_a_blank_after_it(size: int, pos: int, place: int | None) -> None:
    if place is None:
        with pytest.raises(ValueError, match="does not fit a segment of 100"):
            disk.place_entry(size, pos, 100)
    else:
        assert disk.place_entry(size, pos, 100) == place


@pytest.mark.parametrize("offset", [0, 8192, 2**62])
def test_a_file_name_is_the_offset_in_twenty_digits(offset: int) -> None:
    name = disk.file_name(offset)

    assert len(name) == 20
    assert disk.start_offset(name) == offset


@pytest.mark.parametrize("name", ["", "0", "lost+found", "0" * 21, "-" + "0" * 19, "\u0660" * 20])
def test_other_file_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a segment's name"):
        disk.start_offset(name)
