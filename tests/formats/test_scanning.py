"""Scanning entries: packed entries are scanned back, and damaged ones are not taken."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.log import disk
from dledger_formats.log.channels import runs_of
from dledger_formats.log.scanning import EntryScan, scan_entries

BODIES = [b"", b"a", b"body-1", bytes(range(256)), b"\xff" * 700]


def packed(bodies: list[bytes], *, term: int = 3, first_index: int = 0) -> disk.PackedEntries:
    return disk.pack_entries(
        bodies,
        magic=disk.NORMAL,
        first_index=first_index,
        term=term,
        pos=0,
        previous_chain_crc=0,
    )


def scan(data: bytes, *, at: int = 0, limit: int | None = None, **changed: Any) -> EntryScan:
    expected = {"index": 0, "term": 3, "pos": 0, "chain_crc": 0, "count_max": 100} | changed
    return scan_entries(memoryview(data), at, len(data) if limit is None else limit, **expected)


@given(
    st.lists(st.binary(max_size=200), min_size=1, max_size=8),
    st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.integers(0, 2**61),
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 3), min_size=8, max_size=8) | st.none(),
    st.sampled_from(disk.ENTRY_MAGICS),
)
def test_packed_entries_are_scanned_back(
    bodies: list[bytes],
    first_index: int,
    term: int,
    pos: int,
    chain_crc: int,
    channels: list[int] | None,
    magic: int,
) -> None:
    made = disk.pack_entries(
        bodies,
        magic=magic,
        first_index=first_index,
        term=term,
        pos=pos,
        previous_chain_crc=chain_crc,
        channels=channels,
    )

    found = scan(made.data, index=first_index, term=term, pos=pos, chain_crc=chain_crc)

    with_channels = list(runs_of(first_index, magic, (channels or [])[: len(bodies)]))
    assert found == (
        len(made.data), first_index + len(bodies), made.chain_crc, made.units, with_channels, None,
    )  # fmt: skip


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
def test_a_sound_entry_in_the_wrong_place_is_not_taken(
    reason: str, changed: dict[str, int]
) -> None:
    found = scan(packed(BODIES).data, **changed)

    assert found.end == 0
    assert found.damage is not None
    assert found.damage.reason == reason


@pytest.mark.parametrize(("left", "reason"), [(47, "short_header"), (48, "short_body")])
def test_an_entry_that_ends_beyond_the_bytes_is_reported_as_short(left: int, reason: str) -> None:
    data = packed([b"some body"]).data

    found = scan(data, limit=left)

    assert found.end == 0
    assert found.damage is not None
    assert found.damage.reason == reason


def test_a_scan_stops_at_its_limit_or_count_without_an_error() -> None:
    made = packed(BODIES)
    second = disk.unpack_index_unit(made.units, 2 * 32).pos

    by_limit = scan(made.data, limit=second)
    by_count = scan(made.data, count_max=2)

    assert by_limit == by_count
    assert by_limit.damage is None
    assert by_limit.next_index == 2


def test_entries_of_java_without_checksums_are_taken() -> None:
    data = bytearray(packed([b"one", b"two"]).data)
    for at in (0, 51):
        data[at + 36 : at + 44] = bytes(8)

    found = scan(bytes(data))

    assert found.next_index == 2
    assert found.chain_crc == 0


@given(st.binary(max_size=400), st.integers(0, 50))
def test_a_scan_of_any_bytes_neither_fails_nor_exceeds_its_limit(data: bytes, at: int) -> None:
    found = scan(data, at=min(at, len(data)))

    assert at >= len(data) or found.end <= len(data)
    assert len(found.units) == found.next_index * disk.INDEX_UNIT_SIZE
