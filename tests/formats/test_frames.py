"""Remoting frames: Java's bytes, and every way to slice a stream.

golden/frames.jsonl holds frames that Java DLedger 0.3.1.2, 0.4.0 and 0.4.3 exchanged on loopback,
with their clients and with hand-written probes; golden/rocketmq-frames.jsonl those of RocketMQ's
name servers, brokers and clients.
"""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.protocol.frames import (
    FRAME_BYTES_MAX,
    HEADER_BYTES_MAX,
    FrameDecoder,
    RemotingCommand,
    encode,
    encode_requests,
    encode_responses,
)

GOLDEN_FOLDER = Path(__file__).parent / "golden"
GOLDEN = [json.loads(line) for line in (GOLDEN_FOLDER / "frames.jsonl").read_text().splitlines()]
# The stream between a RocketMQ master and its slave has no frames.
ROCKETMQ = {
    f"{frame['name']}-{frame['direction']}-{number}": bytes.fromhex(frame["hex"])
    for number, frame in enumerate(
        map(json.loads, (GOLDEN_FOLDER / "rocketmq-frames.jsonl").read_text().splitlines())
    )
    if not frame["name"].startswith("ha-")
}
JAVA_FRAMES = [bytes.fromhex(frame["hex"]) for frame in GOLDEN]
JAVA_IDS = [f"{frame['name']}-{frame['direction']}-{frame['dialect']}" for frame in GOLDEN]
JSON_FRAMES = [index for index, raw in enumerate(JAVA_FRAMES) if raw[4] == 0]

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
TEXT = st.text(max_size=20)
COMMANDS = st.builds(
    RemotingCommand,
    code=INT32,
    opaque=INT32,
    flag=st.integers(0, 3),
    remark=st.none() | TEXT,
    ext_fields=st.none() | st.dictionaries(TEXT, TEXT, max_size=3),
    body=st.binary(max_size=100),
    language=TEXT,
    version=INT32,
)


def header_of(frame: bytes) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(frame[8 : 8 + int.from_bytes(frame[5:8], "big")])
    return header


def frame_of(header: bytes, body: bytes = b"", header_type: int = 0) -> bytes:
    length = 4 + len(header) + len(body)
    word = header_type << 24 | len(header)
    return length.to_bytes(4, "big") + word.to_bytes(4, "big") + header + body


# Frames of Java.


@pytest.mark.parametrize("index", JSON_FRAMES, ids=[JAVA_IDS[i] for i in JSON_FRAMES])
def test_a_frame_of_java_is_read_and_written_back_unchanged(index: int) -> None:
    raw = JAVA_FRAMES[index]
    [command] = FrameDecoder().feed(raw)

    again = encode(command)

    # The probes leave out a key that Java always writes and never reads.
    assert header_of(again) == {"serializeTypeCurrentRPC": "JSON"} | header_of(raw)
    assert again.endswith(command.body)
    assert len(raw) - len(header_bytes(raw)) == len(again) - len(header_bytes(again))


@pytest.mark.parametrize("raw", ROCKETMQ.values(), ids=ROCKETMQ.keys())
def test_a_frame_of_rocketmq_is_read_and_written_back_unchanged(raw: bytes) -> None:
    [command] = FrameDecoder().feed(raw)

    again = encode(command)

    assert header_of(again) == header_of(raw)
    assert again.endswith(command.body)
    assert len(raw) - len(header_bytes(raw)) == len(again) - len(header_bytes(again))


def header_bytes(frame: bytes) -> bytes:
    return frame[8 : 8 + int.from_bytes(frame[5:8], "big")]


def test_the_request_of_the_specification_is_read() -> None:
    raw = bytes.fromhex(
        "00000068000000627b22636f6465223a35313030322c22666c6167223a302c226c616e6775616765223a224a"
        "415641222c226f7061717565223a31372c2273657269616c697a655479706543757272656e74525043223a22"
        "4a534f4e222c2276657273696f6e223a307d7b7d"
    )

    [command] = FrameDecoder().feed(raw)

    assert command == RemotingCommand(code=51002, opaque=17, language="JAVA", body=b"{}")


def test_the_binary_response_of_the_specification_is_read() -> None:
    raw = bytes.fromhex("0000001b0100001500c800000000000011000000010000000000000000" + "7b7d")

    [command] = FrameDecoder().feed(raw)

    assert command == RemotingCommand(code=200, opaque=17, flag=1, language="JAVA", body=b"{}")


def test_a_code_above_32767_in_a_binary_header_is_read_as_unsigned() -> None:
    index = JAVA_IDS.index("heart-beat-binary-header-not-supported-request-LEGACY")

    [command] = FrameDecoder().feed(JAVA_FRAMES[index])

    assert command.code == 51002


def test_a_binary_header_carries_remark_and_fields() -> None:
    header = (
        b"\x00\x0a" + b"\x09" + b"\x00\x01" + b"\x00\x00\x00\x07" + b"\x00\x00\x00\x02"
        + b"\x00\x00\x00\x03why" + b"\x00\x00\x00\x0a" + b"\x00\x03key" + b"\x00\x00\x00\x01v"
    )  # fmt: skip

    [command] = FrameDecoder().feed(frame_of(header, header_type=1))

    assert command == RemotingCommand(
        code=10, opaque=7, flag=2, remark="why", ext_fields={"key": "v"}, language="GO", version=1
    )


def test_a_command_tells_whether_it_is_a_response_and_whether_it_is_one_way() -> None:
    flags = [RemotingCommand(code=1, opaque=1, flag=flag) for flag in range(4)]

    assert [(c.is_response, c.is_oneway) for c in flags] == [
        (False, False), (True, False), (False, True), (True, True),
    ]  # fmt: skip


# Slices.


@given(st.lists(COMMANDS, max_size=5), st.lists(st.integers(0, 1000), max_size=20))
def test_commands_are_decoded_from_slices_of_any_length(
    commands: list[RemotingCommand], cuts: list[int]
) -> None:
    stream = b"".join(map(encode, commands))
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    decoder = FrameDecoder()

    came = [
        command
        for start, end in itertools.pairwise(edges)
        for command in decoder.feed(stream[start:end])
    ]

    assert came == commands
    assert decoder.pending_bytes == 0


def test_a_stream_in_two_slices_decodes_the_same_wherever_it_is_cut() -> None:
    stream = b"".join(JAVA_FRAMES[:3])
    whole = FrameDecoder().feed(stream)

    for cut in range(len(stream) + 1):
        decoder = FrameDecoder()
        assert decoder.feed(stream[:cut]) + decoder.feed(stream[cut:]) == whole, cut


def test_a_stream_is_decoded_byte_by_byte() -> None:
    stream = b"".join(JAVA_FRAMES)
    decoder = FrameDecoder()

    came = [command for byte in stream for command in decoder.feed(bytes([byte]))]

    assert came == FrameDecoder().feed(stream)


def test_reusing_a_buffer_does_not_change_decoded_commands() -> None:
    buffer = bytearray(encode(RemotingCommand(code=1, opaque=1, body=b"kept")))

    [command] = FrameDecoder().feed(buffer)
    buffer[:] = bytes(len(buffer))

    assert command.body == b"kept"


@given(st.lists(st.tuples(st.integers(0, (1 << 31) - 1), st.binary(max_size=50)), max_size=9))
def test_many_requests_and_responses_are_encoded_as_if_one_by_one(
    frames: list[tuple[int, bytes]],
) -> None:
    requests = [RemotingCommand(code=50001, opaque=o, body=body) for o, body in frames]
    responses = [RemotingCommand(code=200, opaque=o, flag=1, body=body) for o, body in frames]

    assert encode_requests(50001, frames) == b"".join(map(encode, requests))
    assert encode_responses(frames) == b"".join(map(encode, responses))


def test_a_decoder_with_a_higher_limit_takes_longer_headers() -> None:
    raw = frame_of(b" " * HEADER_BYTES_MAX + b'{"code":1,"opaque":7}')

    [command] = FrameDecoder(header_bytes_max=FRAME_BYTES_MAX).feed(raw)

    assert command.opaque == 7


# Encoding.


@pytest.mark.parametrize(
    "command",
    [
        RemotingCommand(code=1, opaque=1, body=bytes(FRAME_BYTES_MAX)),
        RemotingCommand(code=1, opaque=1, remark="x" * HEADER_BYTES_MAX),
    ],
    ids=["body", "header"],
)
def test_a_frame_above_the_limits_is_not_encoded(command: RemotingCommand) -> None:
    with pytest.raises(ValueError, match="exceeds the limits"):
        encode(command)
