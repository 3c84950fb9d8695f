"""GET, FOLLOW and READ_RANGE: their requests, handed to the service, and the forms of answers."""

from functools import partial
from typing import Final

import msgspec

from dledger_formats.protocol import follow, frames, read_range, requests
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.protocol.requests import RequestCode
from dledger_node.remoting.read_turns import Reader
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
    reply = partial(_reply_entries, reader, command.opaque, as_numbers)
    refused = misdirected(service, request)
    if refused is not None:
        reply(requests.GetEntriesResponse(code=refused, group=service.group))
    else:
        service.get(reader, request, reply)


def _reply_entries(reader: Reader, opaque: int, as_numbers: bool, answer: requests.Message) -> None:
    """Answer a GET in the form that the client reads.

    A number takes up to five bytes, so an answer may become too long for a frame. It is then sent
    as base64, and only Java 0.4.3 cannot read it.
    """
    body = answer.to_json(bytes_as_numbers=as_numbers)
    if len(body) > ANSWER_BYTES_MAX:
        body = answer.to_json()
    reader.send(frames.encode_responses([(opaque, body)]))


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
