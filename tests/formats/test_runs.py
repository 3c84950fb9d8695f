"""Runs of stored entries, divided and checked by columns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.log import disk
from dledger_formats.log.disk import DamagedRecordError
from dledger_formats.log.runs import bodies_of

FIRST = 1000
bodies = st.lists(st.binary(max_size=40), min_size=1, max_size=30)
equal_bodies = st.integers(0, 40).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=30)
)


def packed(
    bodies: list[bytes], term: int = 3, first_index: int = FIRST, after: bytes = bytes(48)
) -> bytes:
    """Return stored entries that follow the entry with the header `after`."""
    return bytes(
        disk.pack_entries(
            bodies,
            magic=disk.NORMAL,
            first_index=first_index,
            term=term,
            pos=0,
            previous_chain_crc=disk.unpack_header(after, 0).chain_crc,
        ).data
    )


@given(bodies | equal_bodies)
def test_a_run_gives_its_bodies(bodies: list[bytes]) -> None:
    assert bodies_of(packed(bodies), FIRST) == bodies


@given(equal_bodies, bodies)
def test_a_run_may_hold_entries_of_several_terms(first: list[bytes], second: list[bytes]) -> None:
    run = packed(first, 3)
    last = run[-disk.ENTRY_HEADER_SIZE - len(first[-1]) :]
    run += packed(second, 4, FIRST + len(first), after=last)

    assert bodies_of(run, FIRST) == first + second


def covered(at: int) -> bool:
    """Whether a reader that does not know the entry before can tell that this byte was flipped."""
    # The chain alone covers magic, term, position and channel of the first entry.
    return 4 <= at < 16 or at >= 40


@given(bodies | equal_bodies, st.data())
def test_a_flipped_byte_is_found(bodies: list[bytes], data: st.DataObject) -> None:
    run = bytearray(packed(bodies))
    at = data.draw(st.integers(0, len(run) - 1).filter(covered))
    run[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DamagedRecordError):
        bodies_of(bytes(run), FIRST)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (packed([b"a"], first_index=FIRST + 1), "bad_index"),
        (packed([b"a"], 4) + packed([b"b"], 3, FIRST + 1), "bad_term"),
        (packed([b"a"]) + packed([b"b"], 3, FIRST + 1), "bad_chain_crc"),
        (packed([b"a", b"b"])[:-1], "bad_size"),
        (packed([b"a", b"b"])[:-20], "short_header"),
        (b"", "short_header"),
        (bytes(48), "bad_size"),
    ],
)
def test_a_run_that_is_wrong_is_refused_with_a_reason(run: bytes, reason: str) -> None:
    with pytest.raises(DamagedRecordError) as caught:
        bodies_of(run, FIRST)

    assert caught.value.reason == reason


@given(st.binary(max_size=40).map(lambda body: [body]))
def test_an_entry_without_checksums_is_accepted(bodies: list[bytes]) -> None:
    run = bytearray(packed(bodies))
    run[36:44] = bytes(8)  # Java writes 0 for both checksums

    assert bodies_of(bytes(run), FIRST) == bodies
