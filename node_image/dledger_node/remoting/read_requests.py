"""GET, FOLLOW and READ_RANGE: their requests, handed to the service, and the forms of answers."""

from functools import partial
from typing import Final

import msgspec

from dledger_formats.protocol import follow, frames, read_range, requests
from dledger_formats.protocol.codes import RequestCode
from dledger_formats.protocol.frames import RemotingCommand
from dledger_node.remoting.connection_views import Reader
from dledger_node.remoting.read_turns import ReadTurns
from dledger_node.remoting.service import Service, misdirected

CODES: Final = (RequestCode.GET, follow.FOLLOW, read_range.READ_RANGE)
JAVA: Final = "JAVA"
ANSWER_BYTES_MAX: Final = frames.FRAME_BYTES_MAX - frames.HEADER_BYTES_MAX
NUMBERS_BYTES_MAX: Final = 32 << 10
"""Limit on the bodies of an answer that writes them as numbers, which takes 40 ns a byte; one body
may exceed it.
"""


def read(
    service: Service, command: RemotingCommand, reader: Reader, reads_numbers: bool | None
) -> None:
    """Hand one of the three requests to the service.

    `reads_numbers` is whether the client reads bytes only as numbers; None if its appends have not
    shown that. Raises FormatError.
    """
    if command.code == follow.FOLLOW:
        _follow(service, command, reader)
    elif command.code == read_range.READ_RANGE:
        _read_range(service, command, reader)
    else:
        # A Java client that has not appended yet may be a 0.4.3, which reads only numbers; every
        # other Java version reads them too.
        _get(
            service,
            command,
            reader,
            command.language == JAVA if reads_numbers is None else reads_numbers,
        )


def _get(service: Service, command: RemotingCommand, reader: Reader, as_numbers: bool) -> None:
    request = requests.GetEntriesRequest.from_json(command.body)
    if as_numbers and request.max_size > NUMBERS_BYTES_MAX:
        request = msgspec.structs.replace(request, max_size=NUMBERS_BYTES_MAX)
    reply = partial(_reply_entries, service.read_turns, reader, command.opaque, as_numbers)
    refused = misdirected(service, request)
    if refused is not None:
        reply(requests.GetEntriesResponse(code=refused, group=service.group))
    else:
        service.get(reader, request, reply)


def _reply_entries(
    turns: ReadTurns,
    reader: Reader,
    opaque: int,
    as_numbers: bool,
    answer: requests.GetEntriesResponse,
) -> None:
    """Answer a GET in the form that the client reads."""
    is_long = any(len(entry.body) > NUMBERS_BYTES_MAX for entry in answer.entries)
    if as_numbers and is_long:
        _LongNumbers(turns, reader, opaque, answer)
        return
    body = answer.to_json(bytes_as_numbers=as_numbers)
    reader.send(frames.encode_responses([(opaque, body)]))


class _LongNumbers:
    """An answer with one long body as numbers, encoded in pieces, each in a turn of its reader.

    A number takes up to five bytes, so an answer may become too long for a frame. It is then sent
    as base64, and only Java 0.4.3 cannot read it.
    """

    def __init__(
        self, turns: ReadTurns, reader: Reader, opaque: int, answer: requests.GetEntriesResponse
    ) -> None:
        self._turns = turns
        self._reader = reader
        self._opaque = opaque
        self._answer = answer
        [entry] = answer.entries
        self._body = memoryview(entry.body).cast("b")
        empty = msgspec.structs.replace(
            answer, entries=[msgspec.structs.replace(entry, body=b"")]
        ).to_json(bytes_as_numbers=True)
        head, _, tail = empty.partition(b'"body":[]')
        self._head, self._tail = head + b'"body":[', b"]" + tail
        self._pieces: list[bytes] = []
        self._encoded_bytes = len(self._head) + len(self._tail)
        turns.submit(reader, self._encode_next)

    def _encode_next(self) -> None:
        at = len(self._pieces) * NUMBERS_BYTES_MAX
        piece = msgspec.json.encode(self._body[at : at + NUMBERS_BYTES_MAX].tolist())[1:-1]
        self._pieces.append(piece)
        self._encoded_bytes += len(piece) + len(b",")
        if self._encoded_bytes > ANSWER_BYTES_MAX:
            answer = self._answer.to_json()
            self._reader.send(frames.encode_responses([(self._opaque, answer)]))
        elif at + NUMBERS_BYTES_MAX < len(self._body):
            self._turns.submit(self._reader, self._encode_next)
        else:
            self._send()

    def _send(self) -> None:
        commas = len(self._pieces) - 1
        rest_bytes = sum(map(len, self._pieces)) + commas + len(self._tail)
        send = self._reader.send
        send(frames.encode_response_head(self._opaque, self._head, rest_bytes))
        for piece in self._pieces[:-1]:
            send(piece)
            send(b",")
        send(self._pieces[-1])
        send(self._tail)


def _follow(service: Service, command: RemotingCommand, reader: Reader) -> None:
    request = follow.FollowRequest.from_json(command.body)
    refused = misdirected(service, request)
    if refused is not None:
        answer = follow.FollowResponse(code=refused, group=service.group)
        reader.send(frames.encode_responses([(command.opaque, answer.to_json())]))
    else:
        service.follow(reader, command.opaque, request)


def _read_range(service: Service, command: RemotingCommand, reader: Reader) -> None:
    request = read_range.ReadRangeRequest.from_json(command.body)
    refused = misdirected(service, request)
    if refused is not None:
        answer = read_range.ReadRangeResponse(code=refused, group=service.group)
        reader.send(frames.encode_responses([(command.opaque, answer.head())]))
    else:
        service.read_range(reader, command.opaque, request)
