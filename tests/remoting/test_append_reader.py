"""The readers of appends remember an envelope, and still refuse every invalid request."""

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger_formats.json_objects import FormatError
from dledger_formats.protocol.append_batch import AppendBatchRequest
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.long_body import PART_BYTES
from dledger_formats.protocol.producers import IdempotentAppendRequest
from dledger_formats.protocol.requests import AppendEntryRequest, Request
from dledger_node.remoting.append_reader import (
    ENVELOPE_BYTES_MAX,
    AppendBatchReader,
    AppendReader,
    IdempotentAppendReader,
    Judgement,
    UnfinishedBodyError,
)


class CountingJudge:
    """Refuses every group except g, and counts its calls."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, request: Request) -> Judgement:
        self.asked += 1
        return None if request.group == "g" else DLedgerResponseCode.UNKNOWN_GROUP


def raw(body: bytes, **fields: object) -> bytes:
    text = base64.b64encode(body).decode()
    return json.dumps({"body": text, "code": 200, "group": "g", "term": -1, **fields}).encode()


def compact(body: bytes, group: str = "g") -> bytes:
    return AppendEntryRequest(group=group, remote_id="n0", body=body).to_json()


def test_appends_that_differ_only_in_their_body_are_judged_once() -> None:
    judge = CountingJudge()
    reader = AppendReader(judge)
    bodies = [bytes([number]) * number for number in range(1, 100)]

    assert [reader.read(compact(body)) for body in bodies] == [(None, body) for body in bodies]
    assert judge.asked == 1


def test_a_refusal_is_remembered_too() -> None:
    reader = AppendReader(CountingJudge())

    answers = [reader.read(compact(b"body", group))[0] for group in ("g", "h", "h", "g", "g")]

    refusal = DLedgerResponseCode.UNKNOWN_GROUP
    assert answers == [None, refusal, refusal, None, None]


def test_the_body_of_an_inner_object_is_not_taken_for_the_request_s() -> None:
    reader = AppendReader(CountingJudge())
    forms = [
        b'{"x":{"body":"%s"},"body":"%s","group":"g"}' % (inner, outer)
        for inner in (b"AAAA", b"BBBB", b"CCCC")
        for outer in (b"AAAA", b"BBBB", b"CCCC")
    ]

    read = [reader.read(form)[1] for form in forms * 2]

    assert read == [AppendEntryRequest.from_json(form).body for form in forms * 2]


@pytest.mark.parametrize(
    "trap",
    [
        b'{"body":"AAAA","group":"g","group":"h"}',
        b'{"body":"AAAA","body":"BBBB","group":"g"}',
        b'{"body":"AAAA","group":"g","x":NaN}',
        b'{"body":"AAAA","group":"g","x":"\\ud800"}',
        b'{"body":"AA\x01A","group":"g"}',
        b'{"body":"AA!A","group":"g"}',
        b'{"body":"AAAA","group":"g"',
        b'{"body":"AAAA',
        b'{"body":null,"group":"g"}',
        b'{"body":,"group":"g"}',
        b'{"body":"AAAA","x":"AAAA","x":"AAAA","group":"g"}',
        b'"body":"AAAA"',
        b"",
    ],
)
def test_an_invalid_append_is_refused_every_time(trap: bytes) -> None:
    reader = AppendReader(CountingJudge())
    reader.read(b'{"body":"QUJD","group":"g"}')
    for _ in range(3):
        with pytest.raises(FormatError):
            reader.read(trap)


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.binary(max_size=40), st.dictionaries(st.text(max_size=3), st.text(max_size=3))
        ),
        max_size=8,
    )
)
def test_the_reader_reads_what_the_format_reads(
    requests: list[tuple[bytes, dict[str, str]]],
) -> None:
    reader = AppendReader(CountingJudge())
    for body, fields in requests:
        form = raw(body, **{f"x{key}": value for key, value in fields.items()})
        assert reader.read(form) == (None, body)
        assert reader.read(form) == (None, body)


# APPEND_IDEMPOTENT, whose last two numbers differ from request to request.


def once(body: bytes, producer: int, sequence: int, group: str = "g") -> bytes:
    return IdempotentAppendRequest(
        group=group, remote_id="n0", body=body, producer=producer, sequence=sequence
    ).to_json()


def test_idempotent_appends_that_differ_in_body_and_numbers_are_judged_once() -> None:
    judge = CountingJudge()
    reader = IdempotentAppendReader(judge)
    numbers = [(10**k, 10 ** (17 - k)) for k in range(18)]

    for producer, sequence in numbers:
        body = bytes(producer % 50)
        assert reader.read(once(body, producer, sequence)) == (None, body, producer, sequence)
    assert judge.asked == 1


def test_a_refusal_of_an_idempotent_append_is_remembered_too() -> None:
    reader = IdempotentAppendReader(CountingJudge())

    answers = [reader.read(once(b"body", 1, 2, group))[0] for group in ("h", "h", "g", "h")]

    refusal = DLedgerResponseCode.UNKNOWN_GROUP
    assert answers == [refusal, refusal, None, refusal]


@pytest.mark.parametrize(
    "trap",
    [
        b'{"group":"g","body":"AAAA","producer":1,"sequence":0}',
        b'{"group":"g","body":"AAAA","producer":-1,"sequence":1}',
        b'{"group":"g","body":"AAAA","producer":01,"sequence":1}',
        b'{"group":"g","body":"AAAA","producer":1,"sequence":9223372036854775808}',
        b'{"group":"g","body":"AAAA","producer":1e3,"sequence":1.5}',
        b'{"group":"g","body":"AAAA","producer":true,"sequence":1}',
        b'{"group":"g","body":"AAAA","producer":1,"producer":2,"sequence":1}',
        b'{"group":"g","body":"AAAA","producer":1,"sequence":1,"sequence":1}',
        b'{"group":"g","body":"AAAA","body":"AAAA","producer":1,"sequence":1}',
        b'{"group":"g","body":"AAAA","x":NaN,"producer":1,"sequence":1}',
        b'{"group":"g","body":"AA!A","producer":1,"sequence":1}',
        b'{"group":"g","body":"AAAA"x,"producer":1,"sequence":1}',
        b'{"group":"g","body":"AAAA","producer":1,"sequence":1}}',
        b'{"group":"g","body":"AAAA","producer":1,"sequence":1}\n}',
        b'{"group":"g","body":null,"producer":1,"sequence":1}',
        b'{"group":"g","body":,"producer":1,"sequence":1}',
        b'{"group":"g","producer":1,"sequence":1}',
        b'{"group":"g","body":"AAAA","producer":1}',
    ],
)
def test_an_invalid_idempotent_append_is_refused_every_time(trap: bytes) -> None:
    reader = IdempotentAppendReader(CountingJudge())
    reader.read(b'{"group":"g","body":"QUJD","producer":1,"sequence":1}')
    for _ in range(3):
        with pytest.raises(FormatError):
            reader.read(trap)


def test_the_body_of_an_inner_object_is_not_taken_for_the_idempotent_append_s() -> None:
    reader = IdempotentAppendReader(CountingJudge())
    forms = [
        b'{"x":{"body":"%s","producer":7,"sequence":7},"group":"g","body":"%s","producer":1,'
        b'"sequence":2}' % pair
        for pair in ((b"AAAA", b"BBBB"), (b"BBBB", b"AAAA"), (b"AAAA", b"AAAA"))
    ]

    for form in forms * 2:
        request = IdempotentAppendRequest.from_json(form)
        assert reader.read(form) == (None, request.body, 1, 2)


# APPEND_BATCH, whose envelope is the same from request to request.


def batch(bodies: list[bytes], group: str = "g") -> bytes:
    return AppendBatchRequest(group=group, remote_id="n0", bodies=bodies).to_bytes()


def test_an_envelope_is_judged_only_if_it_differs_from_the_last() -> None:
    judge = CountingJudge()
    reader = AppendBatchReader(judge)
    batches = [[bytes(number)] * (number % 7 + 1) for number in range(50)]

    assert [reader.read(batch(bodies)) for bodies in batches] == [(None, each) for each in batches]
    assert judge.asked == 1
    answers = [reader.read(batch([b"x"], group))[0] for group in ("h", "h", "g", "g")]
    refusal = DLedgerResponseCode.UNKNOWN_GROUP
    assert (answers, judge.asked) == ([refusal, refusal, None, None], 3)


def test_a_long_envelope_is_not_remembered() -> None:
    judge = CountingJudge()
    reader = AppendBatchReader(judge)

    for _ in range(3):
        refused, _ = reader.read(batch([b"x"], "h" * ENVELOPE_BYTES_MAX))
        assert refused is DLedgerResponseCode.UNKNOWN_GROUP
    assert judge.asked == 3


@pytest.mark.parametrize(
    "envelope", [b"", b"[]", b"null", b'{"group":1}', b'{"group":"g","group":"g"}', b"{" * 999]
)
def test_an_invalid_envelope_is_refused_every_time(envelope: bytes) -> None:
    reader = AppendBatchReader(CountingJudge())
    raw = len(envelope).to_bytes(4, "big") + envelope + bytes([0, 0, 0, 1, 0, 0, 0, 1]) + b"x"

    for _ in range(2):
        with pytest.raises(FormatError):
            reader.read(raw)


READERS = {"plain": AppendReader, "idempotent": IdempotentAppendReader}


@pytest.mark.parametrize("kind", READERS)
def test_a_long_array_of_numbers_is_decoded_in_parts(kind: str) -> None:
    numbers = b",".join([b"1"] * 200_000)
    numbered = b',"producer":7,"sequence":1' if kind == "idempotent" else b""
    request = b'{"body":[%s],"group":"g","remoteId":"n0"%s}' % (numbers, numbered)
    reader = READERS[kind](CountingJudge())
    parts = 0

    while True:
        try:
            refused, body, *_ = reader.read(request)
        except UnfinishedBodyError:
            parts += 1
        else:
            break

    assert (refused, body) == (None, b"\1" * 200_000)
    assert parts >= len(request) // PART_BYTES - 1
