"""Bytes that are not a frame: the decoder refuses them with a reason, and the connection closes."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.protocol.frames import (
    FRAME_BYTES_MAX,
    HEADER_BYTES_MAX,
    FrameDecoder,
    FrameError,
    RemotingCommand,
    encode,
)


def frame_of(header: bytes, body: bytes = b"", header_type: int = 0) -> bytes:
    length = 4 + len(header) + len(body)
    word = header_type << 24 | len(header)
    return length.to_bytes(4, "big") + word.to_bytes(4, "big") + header + body


def error_of(data: bytes) -> FrameError:
    with pytest.raises(FrameError) as caught:
        FrameDecoder().feed(data)
    return caught.value


GOOD_HEADER = b'{"code":1,"opaque":1}'
BROKEN = {
    "length of zero": ("length", bytes(8)),
    "length below the header word": ("length", b"\x00\x00\x00\x03" + bytes(4)),
    "length bomb": ("length", b"\x7f\xff\xff\xff\x00\x00\x00\x10"),
    "length with the sign bit": ("length", b"\xff\xff\xff\xff\x00\x00\x00\x10"),
    "HTTP": ("length", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    "TLS": ("length", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    "header of no bytes": ("header_length", frame_of(b"", b"{}")),
    "header past the frame": ("header_length", b"\x00\x00\x00\x08\x00\x00\x00\x05abcd"),
    "header past the limit": ("header_length", frame_of(b" " * (HEADER_BYTES_MAX + 1))),
    "unknown header type": ("header_type", frame_of(GOOD_HEADER, header_type=2)),
    "header that is not JSON": ("header", frame_of(b"abcd")),
    "header that is no object": ("header", frame_of(b"[1,2]")),
    "header of null": ("header", frame_of(b"null")),
    "header without opaque": ("header", frame_of(b'{"code":1}')),
    "opaque of 33 bits": ("header", frame_of(b'{"code":1,"opaque":4294967296}')),
    "opaque of a thousand digits": ("header", frame_of(b'{"code":1,"opaque":%s}' % (b"9" * 1000))),
    "code as text": ("header", frame_of(b'{"code":"1","opaque":1}')),
    "remark that is not UTF-8": ("header", frame_of(b'{"code":1,"opaque":1,"remark":"\xff"}')),
    "header nested too deep": (
        "header",
        frame_of(b'{"code":1,"opaque":1,"x":' + b"[" * 30_000 + b"]" * 30_000 + b"}"),
    ),
    "binary header too short": ("header", frame_of(bytes(12), header_type=1)),
    "binary remark past the header": (
        "header",
        frame_of(bytes(13) + b"\x7f\xff\xff\xff", header_type=1),
    ),
    "binary fields past the header": (
        "header",
        frame_of(bytes(17) + b"\x00\x00\x00\x02\x00\x05", header_type=1),
    ),
}


@pytest.mark.parametrize(("reason", "data"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_stream_is_refused_with_a_reason(reason: str, data: bytes) -> None:
    assert error_of(data).reason == reason


@pytest.mark.parametrize(("reason", "data"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_stream_is_refused_when_it_arrives_byte_by_byte(reason: str, data: bytes) -> None:
    decoder = FrameDecoder()

    with pytest.raises(FrameError) as caught:
        deque((decoder.feed(bytes([byte])) for byte in data), maxlen=0)

    assert caught.value.reason == reason


def test_a_bad_length_is_refused_before_the_rest_of_the_prefix_arrives() -> None:
    assert error_of(b"\x7f\xff\xff\xff").reason == "length"


@pytest.mark.parametrize(("data", "hint"), [(b"GET ", "text"), (b"\x16\x03\x01\x02", "TLS")])
def test_the_error_names_the_protocol_of_a_client_on_the_wrong_port(data: bytes, hint: str) -> None:
    assert hint in str(error_of(data))


def test_the_largest_frame_is_taken_and_one_byte_more_is_refused() -> None:
    largest = frame_of(GOOD_HEADER, bytes(100))

    [command] = FrameDecoder(frame_bytes_max=len(largest)).feed(largest)
    with pytest.raises(FrameError, match="announces"):
        FrameDecoder(frame_bytes_max=len(largest) - 1).feed(largest)

    assert len(command.body) == 100


def test_an_announced_frame_takes_only_the_memory_of_its_received_bytes() -> None:
    decoder = FrameDecoder()

    assert decoder.feed((FRAME_BYTES_MAX - 4).to_bytes(4, "big") + b"\x00\x00\x00\x10") == []
    assert decoder.pending_bytes == 8


def test_the_error_carries_the_commands_before_the_bad_bytes() -> None:
    good = RemotingCommand(code=1, opaque=1, body=b"answer")

    assert error_of(encode(good) + b"HTTP/1.1 400").before == [good]


def test_a_broken_stream_stays_broken() -> None:
    decoder = FrameDecoder()
    for data in (b"HTTP", encode(RemotingCommand(code=1, opaque=1))):
        with pytest.raises(FrameError) as caught:
            decoder.feed(data)

    assert caught.value.before == []


def outcome_of(decoder: FrameDecoder, data: bytes) -> list[bytes] | str:
    """Return the decoded bodies, or the reason of the error."""
    try:
        return [command.body for command in decoder.feed(data)]
    except FrameError as error:
        return error.reason


@given(st.binary(max_size=200), st.sampled_from([0, 1]))
def test_any_header_is_either_read_or_refused(header: bytes, header_type: int) -> None:
    outcome = outcome_of(FrameDecoder(), frame_of(header, b"body", header_type))

    assert outcome in ([b"body"], "header", "header_length")


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_garbage_is_either_kept_as_an_unfinished_frame_or_refused(slices: list[bytes]) -> None:
    decoder = FrameDecoder(frame_bytes_max=256)

    for data in slices:
        outcome_of(decoder, data)

    assert decoder.pending_bytes < 256
