"""Bytes in JSON: each client gets answers in the form that it can read."""

import json
import socket
from collections.abc import Iterator
from typing import Self

import pytest

from dledger_formats.protocol import frames
from dledger_formats.protocol.codes import RequestCode
from dledger_formats.protocol.frames import FrameDecoder, RemotingCommand
from dledger_formats.protocol.requests import (
    AppendEntryRequest,
    AppendEntryResponse,
    GetEntriesRequest,
    GetEntriesResponse,
)
from tools.groups.node_group import NodeGroup

BODY = b"\x00\x7f\x80\xff"
NUMBERS = [0, 127, -128, -1]
BASE64 = "AH+A/w=="


class Talker:
    """A connection that sends one request at a time, with the headers of any language."""

    def __init__(self, group: NodeGroup, language: str) -> None:
        self._member = group.master()
        self._language = language
        host, port = group.peers[self._member].split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def append(self, body: bytes, *, as_numbers: bool) -> int:
        """Append a body and return the entry's index."""
        request = AppendEntryRequest(group="g", remote_id=self._member, body=body)
        answer = self._ask(RequestCode.APPEND, request.to_json(bytes_as_numbers=as_numbers))
        return AppendEntryResponse.from_json(answer).index

    def get(self, index: int) -> bytes:
        """Get one entry and return the answer's raw body."""
        request = GetEntriesRequest(group="g", remote_id=self._member, begin_index=index)
        return self._ask(RequestCode.GET, request.to_json())

    def _ask(self, code: int, body: bytes) -> bytes:
        command = RemotingCommand(code=code, opaque=1, body=body, language=self._language)
        self._socket.sendall(frames.encode(command))
        decoder = FrameDecoder()
        while True:
            for answer in decoder.feed(self._socket.recv(1 << 20)):
                return answer.body


@pytest.fixture(scope="module")
def group_of_one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeGroup]:
    """One member, whose segments hold the longest possible body."""
    folder = tmp_path_factory.mktemp("group")
    with NodeGroup(folder, members=1, segment_size_bytes=8 << 20) as running:
        running.master()
        yield running


@pytest.mark.parametrize(
    ("language", "appends_numbers", "form"),
    [
        ("JAVA", True, NUMBERS),
        ("JAVA", False, BASE64),
        ("JAVA", None, NUMBERS),
        ("PYTHON", True, NUMBERS),
        ("PYTHON", False, BASE64),
        ("PYTHON", None, BASE64),
    ],
)
def test_a_reader_gets_the_form_of_its_appends_and_a_new_java_client_numbers(
    group_of_one: NodeGroup, language: str, appends_numbers: bool | None, form: object
) -> None:
    with Talker(group_of_one, "OTHER") as writer, Talker(group_of_one, language) as reader:
        index = writer.append(BODY, as_numbers=False)
        if appends_numbers is not None:
            reader.append(b"mine", as_numbers=appends_numbers)

        [entry] = json.loads(reader.get(index))["entries"]

    assert entry["body"] == form


def test_a_body_too_long_for_a_frame_of_numbers_is_sent_as_base64(group_of_one: NodeGroup) -> None:
    body = b"\x80" * 4_000_000  # "-128," is five bytes for one
    with Talker(group_of_one, "JAVA") as client:
        index = client.append(body, as_numbers=False)

        with Talker(group_of_one, "JAVA") as reader:
            [entry] = GetEntriesResponse.from_json(reader.get(index)).entries

    assert entry.body == body


@pytest.mark.parametrize("size", [(32 << 10) + 1, 64 << 10, 300_000])
def test_a_long_body_is_sent_as_numbers_too(group_of_one: NodeGroup, size: int) -> None:
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    with Talker(group_of_one, "JAVA") as client:
        index = client.append(body, as_numbers=False)

        with Talker(group_of_one, "JAVA") as reader:
            answer = json.loads(reader.get(index))

    assert answer["code"] == 200
    [entry] = answer["entries"]
    assert entry["index"] == index
    assert bytes(number & 0xFF for number in entry["body"]) == body
