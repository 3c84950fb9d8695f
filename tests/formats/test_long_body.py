"""What a request may contain besides its body is bounded, and what parsing it costs is linear."""

import contextlib
import json
import time
from collections.abc import Callable

import msgspec
import pytest

from dledger_formats.json_objects import FormatError
from dledger_formats.protocol.decoding import JSON_BYTES_MAX
from dledger_formats.protocol.long_body import PART_BYTES, LongBody
from dledger_formats.protocol.producers import IdempotentAppendRequest
from dledger_formats.protocol.requests import AppendEntryRequest, GetEntriesRequest, Request

KIB = 1024
BODY = bytes(range(256)) * 400
APPEND = AppendEntryRequest(group="g", remote_id="n0", body=BODY)
ENVELOPE = b'{"group":"g","remoteId":"n0",'
COST_MAX = 4
"""In the time that the standard library takes for as many bytes of fractions. The dearest shape
takes 1.7 to 2.4 of it on two machines. 1.7 are 31 ns a byte, where 64 KiB may take 76.
"""
TURN_S_MAX = 0.005


def cost_s(work: Callable[[], object]) -> float:
    """Return the processor time of the work; the least of several, since caches are shared."""
    took_s = []
    for _ in range(5):
        begun_s = time.thread_time()
        with contextlib.suppress(FormatError):
            work()
        took_s.append(time.thread_time() - begun_s)
    return min(took_s)


def reference_s(length: int) -> float:
    """Return what the standard library takes for this many bytes of fractions."""
    raw = b"[" + b"1.5," * (length // 4) + b"0]"
    return cost_s(lambda: json.loads(raw))


def costs_no_more_than_others(work: Callable[[], object], length: int) -> bool:
    """Return whether the work takes at most `COST_MAX` in any of some rounds.

    A busy neighbor may spoil many of them. The two costs of one round are measured at about the
    same time: the least ones of all rounds may come from a fast moment and from slow ones.
    """
    return any(cost_s(work) < COST_MAX * reference_s(length) for _ in range(20))


# A long body.


@pytest.mark.parametrize("as_numbers", [False, True], ids=["base64", "numbers"])
def test_a_long_body_is_read_in_either_form(as_numbers: bool) -> None:
    raw = APPEND.to_json(bytes_as_numbers=as_numbers)
    assert len(raw) > JSON_BYTES_MAX

    assert AppendEntryRequest.from_json(raw) == APPEND


def test_a_long_body_may_lack_the_padding_of_base64() -> None:
    raw = AppendEntryRequest(group="g", remote_id="n0", body=BODY + b"x").to_json()

    assert AppendEntryRequest.from_json(raw.replace(b"=", b"")).body == BODY + b"x"


def test_a_long_idempotent_append_keeps_its_other_fields() -> None:
    request = IdempotentAppendRequest(group="g", remote_id="n0", body=BODY, producer=7, sequence=9)

    assert IdempotentAppendRequest.from_json(request.to_json()) == request


@pytest.mark.parametrize(
    "value",
    [
        b'"%s"' % (b"?" * 100_000),
        b'"%s' % (b"A" * 100_000),
        b"[%s]" % b",".join([b"256"] * 50_000),
        b"[%s]" % b",".join([b"[1]"] * 50_000),
        b"[%s]" % b",,".join([b"1"] * 50_000),
        b"[%s,]" % b",".join([b"1"] * 50_000),
        b"[%s" % b",".join([b"1"] * 50_000),
        b"[%s]" % (b"1" * 200_000),
        b"[%s]" % (b" " * 200_000),
        b'{"a":"%s"}' % (b"A" * 100_000),
    ],
    ids=[
        "no base64", "no end", "not a byte", "nested", "a number missing", "the last missing",
        "no end of numbers", "one endless number", "spaces", "an object",
    ],
)  # fmt: skip
def test_a_long_value_that_is_no_body_is_refused(value: bytes) -> None:
    with pytest.raises(FormatError):
        AppendEntryRequest.from_json(ENVELOPE + b'"body":%s}' % value)


@pytest.mark.parametrize(
    "raw",
    [
        ENVELOPE + b'"x":{"body":"%s"},"body":"AAAA"}',
        ENVELOPE + b'"x":{"body":"%s"}}',
        ENVELOPE + b'"body":"AAAA","body":"%s"}',
        ENVELOPE + b'"body":"%s","body":"AAAA"}',
        ENVELOPE + b'"x\\"body":"%s","body":"AQID"}',
        ENVELOPE + b'"body":"%s"}{',
        ENVELOPE + b'"group":"other","body":"%s"}',
    ],
    ids=[
        "nested", "only nested", "second", "first of two", "key ends so", "something behind",
        "another key twice",
    ],
)  # fmt: skip
def test_a_long_value_counts_only_if_it_is_the_only_body(raw: bytes) -> None:
    with pytest.raises(FormatError):
        AppendEntryRequest.from_json(raw % (b"A" * 100_000))


@pytest.mark.parametrize("kind", [GetEntriesRequest, Request])
def test_a_request_without_a_body_may_not_be_long(kind: type[Request]) -> None:
    raw = ENVELOPE + b'"beginIndex":1,"body":"%s"}' % (b"A" * JSON_BYTES_MAX)

    with pytest.raises(FormatError, match="at most"):
        kind.from_json(raw)


def test_one_part_of_a_long_body_takes_a_bounded_time() -> None:
    numbers = b",".join([b"0"] * (1 << 20))
    raw = ENVELOPE + b'"body":[%s]}' % numbers
    long_body, took_s = LongBody(raw), []
    done = False
    while not done:
        begun_s = time.thread_time()
        done = long_body.read_part()
        took_s.append(time.thread_time() - begun_s)

    assert len(long_body.body) == 1 << 20
    assert len(took_s) >= len(numbers) // PART_BYTES
    assert sorted(took_s)[len(took_s) // 2] < TURN_S_MAX


# The cost of parsing.


def of_length(length: int, begin: bytes, unit: bytes, end: bytes) -> bytes:
    """Return a request of at most this length, whose middle repeats `unit`."""
    begin = ENVELOPE + b'"beginIndex":1,"x":' + begin
    return begin + unit * ((length - len(begin) - len(end) - 1) // len(unit)) + end + b"}"


SHAPES = {
    "lists": (b"[", b"[],", b"0]"),
    "objects": (b"[", b"{},", b"0]"),
    "objects with a key": (b"[", b'{"a":0},', b"0]"),
    "open brackets": (b"", b"[", b""),
    "closed brackets": (b"[", b"]", b""),
    "deep, and again": (b"[", b"[" * 30 + b"]" * 30 + b",", b"0]"),
    "a long string": (b'"', b"a", b'"'),
    "strings": (b"[", b'"",', b"0]"),
    "escapes": (b'"', b"\\n", b'"'),
    "escaped letters": (b'"', b"\\u00e9", b'"'),
    "quotes": (b"", b'"', b""),
    "numbers": (b"[", b"1,", b"0]"),
    "fractions": (b"[", b"1.5,", b"0]"),
    "powers": (b"[", b"1e9,", b"0]"),
    "a long number": (b"", b"1", b""),
    "a long fraction": (b"1.", b"1", b""),
    "spaces": (b"0", b" ", b""),
    "strings after brackets": (b"[" * 31 + b"]" * 31, b'"",', b""),
}


@pytest.mark.parametrize("length", [16 * KIB, 32 * KIB, 64 * KIB])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_the_cost_of_hostile_json_is_linear_and_small(
    shape: tuple[bytes, bytes, bytes], length: int
) -> None:
    raw = of_length(length, *shape)

    assert costs_no_more_than_others(lambda: GetEntriesRequest.from_json(raw), length)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("kind", [GetEntriesRequest, AppendEntryRequest])
def test_a_frame_of_hostile_json_is_refused_at_the_cost_of_its_copy(
    shape: tuple[bytes, bytes, bytes], kind: type[Request]
) -> None:
    raw = of_length(5 << 20, *shape)
    with pytest.raises(FormatError):
        kind.from_json(raw)

    assert cost_s(lambda: kind.from_json(raw)) < TURN_S_MAX


def test_keys_without_end_cost_no_more_than_other_json() -> None:
    keys = b",".join(b'"%x":0' % number for number in range(6000))
    raw = ENVELOPE + b'"beginIndex":1,%s}' % keys

    assert costs_no_more_than_others(lambda: GetEntriesRequest.from_json(raw), len(raw))


def test_a_body_of_the_largest_size_takes_no_longer_than_one_turn_may() -> None:
    raw = msgspec.json.encode({"group": "g", "remoteId": "n0", "body": bytes(4 << 20)})

    assert cost_s(lambda: AppendEntryRequest.from_json(raw)) < 0.02
