"""Bodies of the client protocol: Java's bytes, both forms of `byte[]`, and hostile bodies."""

import base64
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.json_objects import FormatError
from dledger_formats.log import disk
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.decoding import reads_numbers
from dledger_formats.protocol.entry import DLedgerEntry, entries_from_disk
from dledger_formats.protocol.frames import FrameDecoder
from dledger_formats.protocol.requests import (
    AppendEntryRequest,
    AppendEntryResponse,
    GetEntriesRequest,
    GetEntriesResponse,
    MetadataRequest,
    MetadataResponse,
    Request,
    Response,
    append_successes,
)

TYPES: dict[tuple[str, str], type[Request | Response]] = {
    ("metadata", "request"): MetadataRequest,
    ("metadata", "response"): MetadataResponse,
    ("append", "request"): AppendEntryRequest,
    ("append", "response"): AppendEntryResponse,
    ("get", "request"): GetEntriesRequest,
    ("get", "response"): GetEntriesResponse,
}
# Probes with a required field left out, or with 255 in an array, which only we and 0.3.3.4 accept.
PROBES = ("append-batch-msgs-system-error", "get-system-error", "append-system-error")

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
ENTRIES = st.builds(
    DLedgerEntry,
    body=st.binary(max_size=40),
    body_crc=st.integers(-(1 << 31), (1 << 31) - 1),
    chain_crc=st.integers(-(1 << 31), (1 << 31) - 1),
    channel=st.just(0),
    index=INT64,
    magic=st.sampled_from(disk.ENTRY_MAGICS),
    pos=INT64,
    size=st.integers(48, 100),
    term=INT64,
)


def java_bodies() -> list[Any]:
    """Return bodies of METADATA, APPEND and GET as Java's nodes and clients wrote them."""
    cases = []
    for line in (Path(__file__).parent / "golden" / "frames.jsonl").read_text().splitlines():
        frame = json.loads(line)
        kind = TYPES.get((frame["name"].partition("-")[0], frame["direction"]))
        [command] = FrameDecoder().feed(bytes.fromhex(frame["hex"]))
        if kind and command.body and frame["name"] not in PROBES:
            name = f"{frame['name']}-{frame['direction']}-{frame['dialect']}"
            as_numbers = frame["dialect"] == "V4-ARRAYS"
            cases.append(pytest.param(kind, command.body, as_numbers, id=name))
    return cases


@pytest.mark.parametrize(("kind", "raw", "as_numbers"), java_bodies())
def test_a_body_of_java_is_read_and_written_back_unchanged(
    kind: type[Request | Response], raw: bytes, as_numbers: bool
) -> None:
    message = kind.from_json(raw)

    assert json.loads(message.to_json(bytes_as_numbers=as_numbers)) == json.loads(raw)


# Bytes.


@given(st.binary(max_size=200), st.booleans())
def test_the_body_of_an_append_is_read_back_from_both_forms(body: bytes, as_numbers: bool) -> None:
    request = AppendEntryRequest(group="g0", remote_id="n0", body=body)

    assert AppendEntryRequest.from_json(request.to_json(bytes_as_numbers=as_numbers)) == request


@given(st.lists(ENTRIES, max_size=4), st.booleans())
def test_entries_are_read_back_from_both_forms_of_their_bodies(
    entries: list[DLedgerEntry], as_numbers: bool
) -> None:
    response = GetEntriesResponse(group="g0", entries=entries)

    assert GetEntriesResponse.from_json(response.to_json(bytes_as_numbers=as_numbers)) == response


@given(st.binary(max_size=50))
def test_base64_may_lack_its_padding(body: bytes) -> None:
    bare = base64.b64encode(body).rstrip(b"=")

    assert AppendEntryRequest.from_json(b'{"body":"%s"}' % bare).body == body


def test_numbers_may_be_signed_or_not() -> None:
    request = AppendEntryRequest.from_json(b'{"body":[72,105,-1,255,-128,128]}')

    assert request.body == b"Hi\xff\xff\x80\x80"


def test_numbers_are_written_signed_because_every_java_reads_those() -> None:
    request = AppendEntryRequest(body=b"\x00\x7f\x80\xff")

    assert json.loads(request.to_json(bytes_as_numbers=True))["body"] == [0, 127, -128, -1]


@pytest.mark.parametrize("as_numbers", [False, True])
def test_an_empty_body_is_written_as_an_empty_list_because_every_java_reads_that(
    as_numbers: bool,
) -> None:
    request = AppendEntryRequest(body=b"")

    assert json.loads(request.to_json(bytes_as_numbers=as_numbers))["body"] == []


@pytest.mark.parametrize(
    ("body", "numbers"),
    [(b"[1]", True), (b'"eA=="', False), (b'"eA"', False), (b"[]", None), (b'""', None)],
)
@pytest.mark.parametrize("colon", [b":", b" : "])
def test_a_body_tells_which_form_its_sender_reads_unless_it_is_empty(
    body: bytes, numbers: bool | None, colon: bytes
) -> None:
    append = b'{"group":"\\"body\\":[1]","body"%s%s}' % (colon, body)

    assert AppendEntryRequest.from_json(append).group == '"body":[1]'
    assert reads_numbers(append) is numbers


# Keys and defaults.


def test_code_and_term_are_always_written_and_missing_values_are_not() -> None:
    assert json.loads(AppendEntryResponse().to_json()) == {
        "code": 200, "term": -1, "index": -1, "pos": -1,
    }  # fmt: skip


def test_a_request_needs_only_the_keys_that_java_needs() -> None:
    request = GetEntriesRequest.from_json(b'{"group":"g0","remoteId":"n0","beginIndex":7}')

    assert request == GetEntriesRequest(group="g0", remote_id="n0", begin_index=7, max_size=0)


def test_a_code_that_is_not_listed_reads_as_unknown() -> None:
    response = AppendEntryResponse.from_json(b'{"code":777,"term":1}')

    assert response.code is DLedgerResponseCode.UNKNOWN


def test_unknown_keys_are_ignored() -> None:
    assert MetadataRequest.from_json(b'{"group":"g0","later":{"x":[1]}}').group == "g0"


# Entries.


def entry_from_disk(body: bytes, body_crc: int) -> DLedgerEntry:
    header = disk.EntryHeader(
        disk.NORMAL, 48 + len(body), 3, 2, 100, 0, 0xFFFF_FFFE, body_crc, len(body)
    )
    [entry] = entries_from_disk(disk.ENTRY_HEADER.pack(*header) + body)
    return entry


def test_checksums_become_signed_numbers_as_java_reads_them() -> None:
    entry = entry_from_disk(b"x", 0x8000_0001)

    assert (entry.body_crc, entry.chain_crc) == (-0x7FFF_FFFF, -2)


@given(st.binary(max_size=50))
def test_a_body_with_its_own_checksum_is_intact(body: bytes) -> None:
    assert entry_from_disk(body, disk.body_crc(body)).is_intact


def test_a_body_with_another_checksum_is_not_intact() -> None:
    assert not entry_from_disk(b"x", disk.body_crc(b"y")).is_intact


def test_a_body_without_checksum_counts_as_intact() -> None:
    assert entry_from_disk(b"x", 0).is_intact


# Hostile bodies.

NO_APPENDS = {
    "nothing": b"",
    "null": b"null",
    "a list": b"[]",
    "not JSON": b"{",
    "not UTF-8": b'{"group":"\xff","body":""}',
    "no body": b'{"group":"g0"}',
    "null for the body": b'{"body":null}',
    "not base64": b'{"body":"$$$$"}',
    "base64 of an impossible length": b'{"body":"aaaaa"}',
    "a number too large": b'{"body":[256]}',
    "a number too small": b'{"body":[-129]}',
    "text in the numbers": b'{"body":["1"]}',
    "a term of 65 bits": b'{"body":"","term":18446744073709551616}',
    "group as a number": b'{"body":"","group":1}',
    "nested too deep": b'{"body":"","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}


@pytest.mark.parametrize("raw", NO_APPENDS.values(), ids=NO_APPENDS.keys())
def test_an_invalid_append_is_refused(raw: bytes) -> None:
    with pytest.raises(FormatError):
        AppendEntryRequest.from_json(raw)


def test_the_refusal_names_the_message_and_the_key() -> None:
    with pytest.raises(FormatError, match=r"GetEntriesRequest: .*beginIndex"):
        GetEntriesRequest.from_json(b"{}")


@given(st.binary(max_size=100))
def test_any_bytes_are_either_read_or_refused(raw: bytes) -> None:
    for kind in TYPES.values():
        with contextlib.suppress(FormatError):
            kind.from_json(raw)


@pytest.mark.parametrize("group", ["g", "100%d", 'quo"te\\', "Gruppe ä"])
def test_many_successes_are_encoded_as_if_one_by_one(group: str) -> None:
    written = append_successes(group, "n0", 3, 41, [0, 1072, 1 << 40])

    assert written == [
        AppendEntryResponse(group=group, leader_id="n0", term=3, index=index, pos=pos).to_json()
        for index, pos in [(41, 0), (42, 1072), (43, 1 << 40)]
    ]
