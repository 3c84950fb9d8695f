"""What two members of a broker group send each other: requests of clients, and their answers.

A member that does not lead, the door of its clients, opens a link to the leader's DLedger port and
introduces itself there, as every member does (`dledger_node.remoting.native`). Then it sends
REQUESTS, each with all requests of one turn of its event loop, and gets ANSWERS. Both are one-way
frames whose body is an array in MessagePack.

    REQUESTS, code 52030    [request, ...]    request: the fields of `DoorRequest`, in this order
    ANSWERS,  code 52031    [answer, ...]     answer:  the fields of `DoorAnswer`
"""

import enum
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from dledger_formats.json_objects import FormatError
from dledger_formats.protocol import frames
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.decoding import Int32, Int64
from dledger_formats.protocol.frames import ONEWAY_FLAG, RemotingCommand

T = TypeVar("T")
REQUESTS_CODE: Final = 52030
ANSWERS_CODE: Final = 52031
REGISTER: Final = 0
"""The code of a request for a registration, which no client may send. The answer's frame is the
producer's identity, as 8 bytes, or the code of the refusal, as 4.
"""
PRESENCE: Final = 52032
"""The code of a note about clients, which no client may send; its body is a `PresenceNote`."""
_IDENTITY_BYTES: Final = 8
_REFUSAL_BYTES: Final = 4
_REQUEST_BYTES: Final = 512
_FIELD_BYTES: Final = 128
"""Bytes counted for a request besides its body and fields, and for a field besides its letters."""
_LETTER_BYTES_MAX: Final = 4
_ANSWERS_BYTES: Final = 1 << 20
_ANSWER_BYTES: Final = 32
"""The most bytes of several answers in one frame, and the bytes counted for each answer besides the
client's frame.
"""
REQUEST_BYTES_MAX: Final = frames.FRAME_BYTES_MAX - 4096
"""The longest request that fits a frame, as `request_bytes` counts."""


class Way(enum.IntEnum):
    """What became of a request at the leader."""

    ANSWERED = 0
    """The request is answered, and is not in the log under its number."""
    STORED = 1
    """The request is answered, and its numbers are in the log."""
    NOT_STORED = 2
    """The copy had no effect and never will; another leader may take it."""
    IN_DOUBT = 3
    """The copy may still take effect. It may be sent again under its number."""
    STRANGE_NUMBER = 4
    """The copy had no effect and never will, since the log does not know its number."""


class DoorRequest(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A client's request."""

    number: Int64
    """The number that pairs the answer with the request."""
    code: Int32
    opaque: Int32
    """The opaque that the client chose."""
    flag: Int32
    version: Int32
    ext_fields: dict[str, str] | None
    body: bytes
    born_host: bytes
    """The client's address, as messages carry it."""
    producer: Int64
    """The identity of the door's producer; -1 for a request without numbers."""
    sequence: Int64
    """The number of its first message."""
    count: Int32
    """How many numbers the request has."""


class DoorAnswer(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The answer to a request."""

    number: Int64
    way: Way
    frame: bytes
    """The frame for the client; empty if there is none."""


class PresenceNote(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A report of a member to the leader about the clients that are connected to it."""

    member: str
    is_first: bool
    """Whether this note begins a report of all connected clients."""
    seen: list[tuple[str, str]]
    """Groups and client ids whose heartbeats the member has received."""
    gone: list[tuple[str, str]]
    """Groups and client ids whose last connection to the member has closed."""
    is_new: bool = False
    """Whether the member may have had other clients before: it has just started, or was out of
    touch.
    """
    is_last: bool = False
    """Whether this note ends a report of all connected clients."""
    ages_s: list[Int32] = []
    """Whole seconds since the heartbeat of each in `seen`. A missing age counts as 0; a release
    without this field sends none.
    """


_encode = msgspec.msgpack.Encoder().encode
_requests = msgspec.msgpack.Decoder(list[DoorRequest])
_answers = msgspec.msgpack.Decoder(list[DoorAnswer])
_presence = msgspec.msgpack.Decoder(PresenceNote)


def request_bytes(body: bytes, ext_fields: dict[str, str] | None) -> int:
    """Return a bound on the bytes that a request takes in memory and in a frame."""
    size = len(body) + _REQUEST_BYTES
    if ext_fields:
        letters = "".join((*ext_fields, *ext_fields.values()))
        size += _FIELD_BYTES * len(ext_fields)
        size += len(letters) if letters.isascii() else _LETTER_BYTES_MAX * len(letters)
    return size


def registration(number: int) -> DoorRequest:
    """Return a request for a registration."""
    return DoorRequest(number, REGISTER, 0, 0, 0, None, b"", b"", -1, 0, 0)


def encode_requests(requests: Sequence[DoorRequest], opaque: int = 0) -> bytes:
    """Return the frame of requests. Raises ValueError if it would be too long.

    A member that does not know these frames refuses each of them under its `opaque`.
    """
    return _frame(REQUESTS_CODE, _encode(requests), opaque)


def encode_answers(answers: Sequence[DoorAnswer]) -> bytes:
    """Return the frame of answers. Raises ValueError if it would be too long."""
    return _frame(ANSWERS_CODE, _encode(answers))


def answer_frames(answers: Sequence[DoorAnswer]) -> Iterator[bytes]:
    """Yield the frames of any number of answers, none of which is too long by itself."""
    part: list[DoorAnswer] = []
    part_bytes = 0
    for answer in answers:
        if part_bytes + len(answer.frame) > _ANSWERS_BYTES and part:
            yield encode_answers(part)
            part, part_bytes = [], 0
        part.append(answer)
        part_bytes += len(answer.frame) + _ANSWER_BYTES
    yield encode_answers(part)


def decode_requests(body: bytes) -> list[DoorRequest]:
    """Read the body of REQUESTS. Raises FormatError."""
    return _decode(_requests, body)


def decode_answers(body: bytes) -> list[DoorAnswer]:
    """Read the body of ANSWERS. Raises FormatError."""
    return _decode(_answers, body)


def encode_presence(note: PresenceNote) -> bytes:
    """Return the body of a note about clients."""
    return _encode(note)


def decode_presence(body: bytes) -> PresenceNote:
    """Read the body of a note about clients. Raises FormatError."""
    return _decode(_presence, body)


def encode_identity(identity: int) -> bytes:
    """Return, as the frame of an answer, the identity of a producer."""
    return identity.to_bytes(_IDENTITY_BYTES, "big")


def decode_identity(frame: bytes) -> int:
    """Read the identity of a producer. Raises FormatError."""
    if len(frame) != _IDENTITY_BYTES:
        raise FormatError(f"the identity of a producer has {len(frame)} bytes")
    return int.from_bytes(frame, "big")


def encode_refusal(code: DLedgerResponseCode) -> bytes:
    """Return, as the frame of an answer, why a producer is not registered."""
    return code.to_bytes(_REFUSAL_BYTES, "big", signed=True)


def decode_refusal(frame: bytes) -> DLedgerResponseCode:
    """Read why a producer is not registered: UNKNOWN for a code of a later release.

    Raises FormatError.
    """
    if len(frame) != _REFUSAL_BYTES:
        raise FormatError(f"the refusal of a registration has {len(frame)} bytes")
    return DLedgerResponseCode(int.from_bytes(frame, "big", signed=True))


def _frame(code: int, body: bytes, opaque: int = 0) -> bytes:
    return frames.encode(RemotingCommand(code=code, opaque=opaque, flag=ONEWAY_FLAG, body=body))


def _decode(decoder: "msgspec.msgpack.Decoder[T]", body: bytes) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"a frame between members cannot be read: {error}") from error
