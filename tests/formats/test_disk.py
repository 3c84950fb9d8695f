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
    """All segments of one kind, one after the other."""
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


def scan(data: bytes, *, at: int = 0, limit: int | None = None, **changed: Any) -> disk.EntryScan:
    expected = {"index": 0, "term": 3, "pos": 0, "chain_crc": 0, "count_max": 100} | changed
    return disk.scan_entries(
        memoryview(data), at, len(data) if limit is None else limit, **expected
    )


def test_the_bytes_of_an_entry_are_those_that_java_writes() -> None:
    java = bytes.fromhex(
        "00000001 00000036 0000000000000000 0000000000000001 0000000000000000"
        "00000000 00000000 00000000 00000006 626f64792d30"
    )

    header = disk.check_entry(java, 0, len(java), previous_chain_crc=0)

    assert header == (disk.NORMAL, 54, 0, 1, 0, 0, 0, 0, 6)
    assert disk.ENTRY_HEADER.pack(*header) + b"body-0" == java


def test_the_bytes_of_an_index_unit_are_those_that_java_writes() -> None:
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


@given(
    st.lists(st.binary(max_size=200), min_size=1, max_size=8),
    st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.integers(0, 2**61),
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, 2**31 - 1) | st.just(0), min_size=8, max_size=8) | st.none(),
)
def test_what_is_packed_is_scanned_back(
    bodies: list[bytes],
    first_index: int,
    term: int,
    pos: int,
    chain_crc: int,
    channels: list[int] | None,
) -> None:
    made = disk.pack_entries(
        bodies,
        magic=disk.NOOP,
        first_index=first_index,
        term=term,
        pos=pos,
        previous_chain_crc=chain_crc,
        channels=channels,
    )

    found = scan(made.data, index=first_index, term=term, pos=pos, chain_crc=chain_crc)

    with_channels = [
        (first_index + number, disk.NOOP, channel)
        for number, channel in enumerate((channels or [])[: len(bodies)])
        if channel
    ]
    assert found == (
        len(made.data), first_index + len(bodies), made.chain_crc, made.units, with_channels, None,
    )  # fmt: skip


def encoded(
    magic: int, index: int, term: int, pos: int, channel: int, chain_crc: int, body: bytes
) -> tuple[bytes, bytes, int]:
    """An entry, its index unit and its chain CRC, field by field as docs/disk-format.md says."""

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
def test_entries_packed_together_are_those_encoded_one_by_one(
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


def test_what_is_packed_without_channels_has_channel_zero() -> None:
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


@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_is_found_at_the_entry_that_holds_it(bit: int) -> None:
    made = packed(BODIES)
    ends = [disk.unpack_index_unit(made.units, at).pos for at in range(0, len(made.units), 32)]
    for byte in range(len(made.data)):
        damaged = bytearray(made.data)
        damaged[byte] ^= 1 << bit
        found = scan(bytes(damaged))

        assert found.damage is not None, f"byte {byte}"
        assert found.end == max(end for end in ends if end <= byte), f"byte {byte}"


@pytest.mark.parametrize(
    ("reason", "changed"),
    [
        ("bad_index", {"index": 1}),
        ("bad_term", {"term": 2}),
        ("bad_pos", {"pos": 48}),
        ("bad_chain_crc", {"chain_crc": 5}),
    ],
)
def test_a_sound_entry_that_belongs_elsewhere_is_not_taken(
    reason: str, changed: dict[str, int]
) -> None:
    found = scan(packed(BODIES).data, **changed)

    assert found.end == 0
    assert found.damage is not None
    assert found.damage.reason == reason


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
def test_the_reason_names_the_field_that_is_wrong(reason: str, offset: int, value: bytes) -> None:
    data = bytearray(packed([b"some body"]).data)
    data[offset : offset + len(value)] = value

    with pytest.raises(disk.DamagedRecordError) as raised:
        disk.check_entry(data, 0, len(data), previous_chain_crc=0)

    assert raised.value.reason == reason


@pytest.mark.parametrize(("left", "reason"), [(47, "short_header"), (48, "short_body")])
def test_an_entry_that_does_not_end_within_the_bytes_is_short(left: int, reason: str) -> None:
    data = packed([b"some body"]).data

    found = scan(data, limit=left)

    assert found.end == 0
    assert found.damage is not None
    assert found.damage.reason == reason


def test_a_scan_stops_at_its_limit_and_at_its_count_without_complaint() -> None:
    made = packed(BODIES)
    second = disk.unpack_index_unit(made.units, 2 * 32).pos

    by_limit = scan(made.data, limit=second)
    by_count = scan(made.data, count_max=2)

    assert by_limit == by_count
    assert by_limit.damage is None
    assert by_limit.next_index == 2


def test_entries_without_checksums_are_taken_as_java_wrote_them() -> None:
    data = bytearray(packed([b"one", b"two"]).data)
    for at in (0, 51):
        data[at + 36 : at + 44] = bytes(8)

    found = scan(bytes(data))

    assert found.next_index == 2
    assert found.chain_crc == 0


@given(st.binary(max_size=400), st.integers(0, 50))
def test_no_bytes_make_a_scan_fail_or_leave_its_limit(data: bytes, at: int) -> None:
    found = scan(data, at=min(at, len(data)))

    assert at >= len(data) or found.end <= len(data)
    assert len(found.units) == found.next_index * disk.INDEX_UNIT_SIZE


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
def test_an_entry_leaves_room_for_a_blank_behind_it(size: int, pos: int, place: int | None) -> None:
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
def test_other_names_are_no_segments(name: str) -> None:
    with pytest.raises(ValueError, match="not a segment's name"):
        disk.start_offset(name)
