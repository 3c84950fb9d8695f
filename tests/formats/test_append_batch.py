"""The form of APPEND_BATCH: an encoded batch is decoded unchanged, and other bytes are refused."""

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


def test_a_batch_has_its_numbers_where_the_docstring_says() -> None:
    envelope = Request(group="g", remote_id="n0").to_json()
    lengths = struct.pack(">IIII", 3, 3, 0, 5)

    assert struct.pack(">I", len(envelope)) + envelope + lengths + b"onethree" == SOUND


@pytest.mark.parametrize("length", range(len(SOUND)))
def test_a_truncated_batch_is_refused(length: int) -> None:
    with pytest.raises(FormatError):
        split(SOUND[:length])


def test_bytes_after_the_bodies_are_refused() -> None:
    with pytest.raises(FormatError, match="would end at"):
        split(SOUND + b"x")


@pytest.mark.parametrize("count", [0, BODIES_MAX + 1, (1 << 32) - 1])
def test_a_batch_with_no_body_or_too_many_is_refused(count: int) -> None:
    raw = SOUND[:COUNT_AT] + count.to_bytes(4, "big") + bytes(4 * min(count, BODIES_MAX + 1))

    with pytest.raises(FormatError, match=f"a batch of {count} bodies"):
        split(raw)
