"""The form of APPEND_BATCH: what is written is read alike, and nothing else is."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.json_objects import FormatError
from dledger_formats.protocol.append_batch import BODIES_MAX, AppendBatchRequest, split
from dledger_formats.protocol.requests import Request

SOUND = AppendBatchRequest(group="g", remote_id="n0", bodies=[b"one", b"", b"three"]).to_bytes()
COUNT_AT = 4 + int.from_bytes(SOUND[:4], "big")


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=20))
def test_bodies_are_read_as_they_were_written(bodies: list[bytes]) -> None:
    raw = AppendBatchRequest(group="g", remote_id="n0", bodies=bodies).to_bytes()

    envelope, read = split(raw)

    assert read == bodies
    assert Request.from_json(envelope) == Request(group="g", remote_id="n0")


def test_the_numbers_stand_where_the_page_says() -> None:
    envelope = Request(group="g", remote_id="n0").to_json()
    lengths = struct.pack(">IIII", 3, 3, 0, 5)

    assert struct.pack(">I", len(envelope)) + envelope + lengths + b"onethree" == SOUND


@pytest.mark.parametrize("length", range(len(SOUND)))
def test_no_part_of_a_request_is_one(length: int) -> None:
    with pytest.raises(FormatError):
        split(SOUND[:length])


def test_nothing_may_follow_the_bodies() -> None:
    with pytest.raises(FormatError, match="would end at"):
        split(SOUND + b"x")


@pytest.mark.parametrize("count", [0, BODIES_MAX + 1, (1 << 32) - 1])
def test_there_is_one_body_at_least_and_not_too_many(count: int) -> None:
    raw = SOUND[:COUNT_AT] + count.to_bytes(4, "big") + bytes(4 * min(count, BODIES_MAX + 1))

    with pytest.raises(FormatError, match=f"a batch of {count} bodies"):
        split(raw)
