"""The native dialect: the core's messages as bytes, between Python members.

A link carries messages one way, from the member that opened it. Its first frame says who is
calling:

    HELLO    code 52001, JSON body {group, senderId, receiverId, segmentSizeBytes, protocol}
    MESSAGE  code 52000, binary body: kind (1 byte), the message's numbers, and for APPEND and
             INSTALL_SNAPSHOT the stored bytes of its entries, exactly as they lie in the
             leader's segments; kinds of their own have memberships before these
             (`told_memberships`). From 64 on, kinds that the core never hears of

Sender and receiver are known from HELLO, so a MESSAGE does not repeat them. Both codes are outside
the range that Java DLedger uses; it answers them with "not supported". HELLO is answered; a MESSAGE
is not.
"""

import struct
from collections.abc import Callable, Container, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from dledger_formats import json_objects
from dledger_formats.json_objects import FormatError
from dledger_formats.protocol import frames
from dledger_formats.protocol.frames import RemotingCommand
from dledger_node.errors import RemoteProtocolError
from dledger_node.raft.messages import (
    AppendRequest,
    CompareRequest,
    HeartBeatRequest,
    HeartBeatResponse,
    HeldByAllNotice,
    InstallSnapshotRequest,
    JoinRequest,
    JoinResponse,
    Mark,
    Message,
    PreVoteRequest,
    PreVoteResponse,
    PushResponse,
    PushResult,
    TakeLeadershipRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger_node.remoting import told_memberships
from dledger_node.remoting.snapshot_messages import SnapshotChunk, SnapshotChunkRequest

MESSAGE_CODE: Final = 52000
HELLO_CODE: Final = 52001
PROTOCOL: Final = 2
"""Raised when members that speak another one must not be in one group with these. A new kind of
message is no reason: who does not know it closes the link, and whoever sent it learns nothing.
"""
NO_PROBE: Final = -1

PeerMessage: TypeAlias = Message | SnapshotChunkRequest | SnapshotChunk
"""What a link carries."""

_PREFIX: Final = struct.Struct(">II")
# Every MESSAGE has the same frame header: one way, so that nobody waits for an answer.
_HEADER: Final = frames.encode(
    RemotingCommand(code=MESSAGE_CODE, opaque=0, flag=frames.ONEWAY_FLAG)
)[frames.PREFIX_BYTES :]


class Hello(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who opens a link, and what it takes for granted."""

    group: str
    sender_id: str
    receiver_id: str
    segment_size_bytes: int
    """Blanks lie in the same places only when all members roll at the same size."""
    protocol: int = PROTOCOL
    life: int = 0
    """Drawn by the sender at its start: nothing of an earlier life is heard after this."""


class Kind(NamedTuple):
    """How one message is laid out: the numbers behind the kind byte, and their fields."""

    message: type[PeerMessage]
    numbers: struct.Struct
    fields: tuple[str, ...]


KINDS: Final[dict[int, Kind]] = {
    1: Kind(
        VoteRequest,
        struct.Struct(">qqqB"),
        ("term", "ledger_end_index", "ledger_end_term", "take_leadership"),
    ),
    2: Kind(VoteResponse, struct.Struct(">qqB"), ("term", "requested_term", "result")),
    3: Kind(HeartBeatRequest, struct.Struct(">qqq"), ("term", "committed_index", "round")),
    4: Kind(HeartBeatResponse, struct.Struct(">qq"), ("term", "round")),
    5: Kind(
        CompareRequest,
        struct.Struct(">qqqqq"),
        ("term", "index", "index_term", "committed_index", "probe"),
    ),
    6: Kind(
        AppendRequest,
        struct.Struct(">qqqqqqq"),
        ("term", "previous_index", "previous_term", "first_index", "last_index", "entries_term",
         "committed_index"),
    ),
    7: Kind(
        PushResponse,
        struct.Struct(">qqBqqqqq"),
        ("term", "requested_term", "result", "match_index", "ledger_end_index", "conflict_term",
         "conflict_index", "probe"),
    ),
    8: Kind(PreVoteRequest, struct.Struct(">qqq"), ("term", "ledger_end_index", "ledger_end_term")),
    9: Kind(PreVoteResponse, struct.Struct(">qqB"), ("term", "requested_term", "result")),
    10: Kind(TakeLeadershipRequest, struct.Struct(">q"), ("term",)),
    11: Kind(JoinRequest, struct.Struct(">qq"), ("term", "incarnation")),
    12: Kind(
        JoinResponse,
        struct.Struct(">qqqBBB"),
        ("term", "incarnation", "ledger_end_index", "leading", "joining", "alone"),
    ),
    13: Kind(
        InstallSnapshotRequest,
        struct.Struct(">qqqqq"),
        ("term", "first_index", "last_index", "entries_term", "committed_index"),
    ),
    14: Kind(HeartBeatResponse, struct.Struct(">qq"), ("term", "round")),
    64: Kind(HeldByAllNotice, struct.Struct(">qq"), ("term", "index")),
    65: Kind(SnapshotChunkRequest, struct.Struct(">qq"), ("index", "offset")),
    66: Kind(
        SnapshotChunk,
        struct.Struct(">qqqqq"),
        ("last_included_index", "last_included_term", "data_bytes", "data_crc32", "offset"),
    ),
}  # fmt: skip
JOINING_HEARTBEAT: Final = 14
MARKED_ANSWER: Final = 20
"""JoinResponse with a mark, and with memberships behind it if there are any to be told. It answers
those questions alone that ask for a mark, so no member that does not know it meets it.
"""
WITH_MEMBERSHIPS: Final = {6: 15, 12: 16, 13: 17}
"""APPEND, JoinResponse and INSTALL_SNAPSHOT, when there are memberships to be told."""
KINDS.update({number: KINDS[plain] for plain, number in WITH_MEMBERSHIPS.items()})
KINDS[MARKED_ANSWER] = KINDS[12]
_MARK: Final = struct.Struct(">qqq")
_TELL_MEMBERSHIPS: Final = frozenset(WITH_MEMBERSHIPS.values())
_SPECIAL: Final = {JOINING_HEARTBEAT, MARKED_ANSWER, *_TELL_MEMBERSHIPS}
_KIND_OF: Final = {kind.message: number for number, kind in KINDS.items() if number not in _SPECIAL}
_FLAGS: Final = (False, True)
_FLAG_FIELDS: Final = frozenset(("take_leadership", "leading", "joining", "alone"))
_RESULTS: Final[dict[type[PeerMessage], tuple[Any, ...]]] = {
    VoteResponse: tuple(VoteResult),
    PreVoteResponse: tuple(VoteResult),
    PushResponse: tuple(PushResult),
}
_NUMBERS_OF_RESULTS: Final = {
    result: number for results in _RESULTS.values() for number, result in enumerate(results)
}


def _meaning(message: type[PeerMessage], field: str) -> Callable[[int], Any] | None:
    """What a field's number stands for, if for something else than itself."""
    if field == "result":
        return _RESULTS[message].__getitem__
    if field in _FLAG_FIELDS:
        return _FLAGS.__getitem__
    return _probe if field == "probe" else None


def _probe(number: int) -> int | None:
    return None if number == NO_PROBE else number


def _values_of(fields: tuple[str, ...]) -> Callable[[PeerMessage], tuple[object, ...]]:
    get = attrgetter(*fields)
    return get if len(fields) > 1 else lambda message: (get(message),)


# What depends on a message's kind alone is found once, since every append passes here.
_VALUES: Final = {number: _values_of(kind.fields) for number, kind in KINDS.items()}
_MEANINGS: Final = {
    number: tuple(
        (field, meaning)
        for field in kind.fields
        if (meaning := _meaning(kind.message, field)) is not None
    )
    for number, kind in KINDS.items()
}


def encode(message: PeerMessage, entries: Sequence[frames.Buffer] = ()) -> list[frames.Buffer]:
    """Return the buffers of one frame, the entries' bytes among them as they are."""
    number, memberships = _KIND_OF[type(message)], b""
    match message:
        case AppendRequest() | InstallSnapshotRequest() | JoinResponse():
            memberships = told_memberships.encode(message)
            number = WITH_MEMBERSHIPS[number] if memberships else number
            if isinstance(message, JoinResponse) and message.mark is not None:
                number, memberships = MARKED_ANSWER, _MARK.pack(*message.mark) + memberships
        case SnapshotChunk():
            entries = (message.data,)
        case HeartBeatResponse(joining=True):
            number = JOINING_HEARTBEAT
    values = [
        value if type(value) is int else _to_number(value) for value in _VALUES[number](message)
    ]
    head = bytes((number,)) + KINDS[number].numbers.pack(*values) + memberships
    body_bytes = len(head) + sum(map(len, entries))
    length = frames.LENGTH_WORD_BYTES + len(_HEADER) + body_bytes
    return [_PREFIX.pack(length, len(_HEADER)) + _HEADER + head, *entries]


def decode(body: bytes | memoryview, sender: str, receiver: str) -> PeerMessage:
    """Read one message; RemoteProtocolError when the bytes are none.

    The entries of an APPEND, and the data of a SnapshotChunk, are left as a view into `body`,
    unread: `store.block` judges the former.
    """
    try:
        kind = KINDS[body[0]]
        values = kind.numbers.unpack_from(body, 1)
    except (IndexError, KeyError, struct.error) as error:
        raise RemoteProtocolError(
            f"{sender} sent a message that cannot be read: {error}"
        ) from error
    named = dict(zip(kind.fields, values, strict=True))
    rest = memoryview(body)[1 + kind.numbers.size :]
    try:
        if body[0] in _SPECIAL:
            told, rest = _decode_rest(body[0], rest)
            named |= told
        if kind.message in (AppendRequest, InstallSnapshotRequest):
            named["entries"] = rest
        elif kind.message is SnapshotChunk:
            named["data"] = rest
        elif rest:
            raise RemoteProtocolError(f"{sender} sent {len(rest)} bytes behind a message")
        for field, meaning in _MEANINGS[body[0]]:
            named[field] = meaning(named[field])
        return kind.message(sender=sender, receiver=receiver, **named)
    except (IndexError, ValueError, struct.error, msgspec.MsgspecError) as error:
        raise RemoteProtocolError(
            f"{sender} sent a {kind.message.__name__} that cannot be"
        ) from error


def _decode_rest(number: int, rest: memoryview) -> tuple[dict[str, Any], memoryview]:
    """Read what a special kind says besides its numbers: mark and memberships lie behind them."""
    if number == JOINING_HEARTBEAT:
        return {"joining": True}, rest
    mark: dict[str, Any] = {}
    if number == MARKED_ANSWER:
        mark, rest = {"mark": Mark(*_MARK.unpack_from(rest))}, rest[_MARK.size :]
    if number in _TELL_MEMBERSHIPS or (mark and rest):
        told, rest = told_memberships.decode(KINDS[number].message, rest)
        return mark | told, rest
    return mark, rest


def _to_number(value: object) -> int:
    if value is None:
        return NO_PROBE
    return int(value) if isinstance(value, bool) else _NUMBERS_OF_RESULTS[value]


def encode_hello(hello: Hello, opaque: int) -> bytes:
    """Return the frame that opens a link."""
    return frames.encode(
        RemotingCommand(code=HELLO_CODE, opaque=opaque, body=msgspec.json.encode(hello))
    )


def decode_hello(body: bytes | memoryview) -> Hello:
    """Read the body of a HELLO; RemoteProtocolError when it is none."""
    try:
        json_objects.parse(bytes(body))
        return msgspec.json.decode(body, type=Hello)
    except (FormatError, msgspec.MsgspecError) as error:
        raise RemoteProtocolError(
            f"a link was opened with a HELLO that cannot be read: {error}"
        ) from error


def refusal(hello: Hello, expected: Hello, peers: Container[str]) -> str | None:
    """Say why this caller may not open a link; None when it may.

    `expected` is what this member would say to the caller; `peers` are the other members' ids.
    """
    if hello.group != expected.group or hello.receiver_id != expected.sender_id:
        return f"this is {expected.sender_id} of the group {expected.group}"
    if hello.sender_id not in peers:
        return f"{hello.sender_id} is no other member of the group {expected.group}"
    if hello.protocol != expected.protocol:
        return f"protocol {hello.protocol}; {expected.protocol} is spoken here"
    if hello.segment_size_bytes != expected.segment_size_bytes:
        return (
            f"segments of {hello.segment_size_bytes} bytes; all members must use the same size, "
            f"which is {expected.segment_size_bytes} here"
        )
    return None
