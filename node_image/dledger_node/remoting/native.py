"""The native dialect: the messages between Python members, as bytes.

A link carries messages one way, from the member that opened it. Its first frame names the sender:

    HELLO    code 52001, JSON body {group, groupIdentity, senderId, receiverId, segmentSizeBytes,
             protocol, incarnation}
    MESSAGE  code 52000, binary body: see `message_kinds`

Sender and receiver are known from HELLO, so a MESSAGE does not repeat them. Both codes are outside
the range that Java DLedger uses; a Java server answers them with "not supported". HELLO is
answered; a MESSAGE is not.
"""

import struct
from collections.abc import Container, Sequence
from functools import partial
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from dledger_formats.json_objects import FormatError
from dledger_formats.protocol import frames
from dledger_formats.protocol.decoding import Int64, decode_leniently, decode_strictly
from dledger_formats.protocol.frames import RemotingCommand
from dledger_node.errors import RemoteProtocolError
from dledger_node.raft.log_terms import LogEnd
from dledger_node.raft.recall_messages import Mark
from dledger_node.remoting import told_memberships
from dledger_node.remoting.message_kinds import KIND_OF, KINDS, Kind, PeerMessage, to_number

MESSAGE_CODE: Final = 52000
HELLO_CODE: Final = 52001
PROTOCOL: Final = 1
"""The version of HELLO and of all messages. Members with different versions refuse each other.

The layouts may still change under this version, since no release has it. From the first release on,
every change needs a new version, and a way to roll a group from the old one.
"""

Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=255)]
"""The name of a group or a member: short, because a refusal quotes it in the header of a frame."""

HELLO_BYTES_MAX: Final = 4096
"""The longest body of a HELLO; its three names have at most 255 characters each."""

_PREFIX: Final = struct.Struct(">II")
_NO_MARK: Final = b"\0"
_MARK_FOLLOWS: Final = b"\1"
_MARK: Final = struct.Struct(">qqqqqB")
# Every MESSAGE has the same frame header: one-way, so that no answer is expected.
_HEADER: Final = frames.encode(
    RemotingCommand(code=MESSAGE_CODE, opaque=0, flag=frames.ONEWAY_FLAG)
)[frames.PREFIX_BYTES :]


class Hello(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The first frame of a link: its two ends, and the values on which both must agree."""

    group: Name
    sender_id: Name
    receiver_id: Name
    segment_size_bytes: Int64
    """Segment size, the same for all members, so that blank records lie in the same places."""
    incarnation: Int64
    """Drawn by the sender at its start. Links of its earlier incarnations are cut."""
    protocol: Int64
    group_identity: Name = ""
    """The identity of the sender's group; empty if it knows none, as in earlier releases."""


class _Version(msgspec.Struct, frozen=True):
    """The one field of a HELLO that every version has."""

    protocol: Int64


def encode(message: PeerMessage, entries: Sequence[frames.Buffer] = ()) -> list[frames.Buffer]:
    """Return the buffers of one frame; the buffers of `entries` are passed on uncopied."""
    kind = KIND_OF[type(message)]
    values = [
        value if type(value) is int else to_number(value) for value in kind.values_of(message)
    ]
    parts = [bytes((kind.number,)), kind.numbers.pack(*values)]
    tail: Any = message  # its kind says which of these fields it has
    if kind.has_mark:
        parts.append(_encode_mark(tail.mark))
    if kind.has_memberships:
        parts.append(told_memberships.encode(tail))
    if kind.payload == "data":
        entries = (tail.data,)
    head = b"".join(parts)
    body_bytes = len(head) + sum(map(len, entries))
    length = frames.LENGTH_WORD_BYTES + len(_HEADER) + body_bytes
    return [_PREFIX.pack(length, len(_HEADER)) + _HEADER + head, *entries]


def decode(body: bytes | memoryview, sender: str, receiver: str) -> PeerMessage:
    """Read one message. Raises RemoteProtocolError if the bytes are not a message.

    The entries of a push and the data of a SnapshotChunk are left as a view into `body`, unread.
    `store.block` checks the entries.
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
        rest = _decode_tail(kind, rest, named)
        if rest:
            raise RemoteProtocolError(f"{sender} sent a message with {len(rest)} extra bytes")
        for field, meaning in kind.meanings:
            named[field] = meaning(named[field])
        return kind.message(sender=sender, receiver=receiver, **named)
    except (IndexError, ValueError, struct.error, msgspec.MsgspecError) as error:
        raise RemoteProtocolError(
            f"{sender} sent an invalid {kind.message.__name__}: {error}"
        ) from error


def _decode_tail(kind: Kind, rest: memoryview, named: dict[str, Any]) -> memoryview:
    """Add the fields after a message's numbers to `named`, and return the remaining bytes."""
    if kind.has_mark:
        named["mark"], rest = _decode_mark(rest)
    if kind.has_memberships:
        told, rest = told_memberships.decode(kind.message, rest)
        named |= told
    if kind.payload is not None:
        named[kind.payload], rest = rest, rest[len(rest) :]
    return rest


def _encode_mark(mark: Mark | None) -> bytes:
    if mark is None:
        return _NO_MARK
    *numbers, end, is_whole = mark
    return _MARK_FOLLOWS + _MARK.pack(*numbers, *end, is_whole)


def _decode_mark(rest: memoryview) -> tuple[Mark | None, memoryview]:
    announced = bytes(rest[:1])
    if announced == _NO_MARK:
        return None, rest[1:]
    if announced != _MARK_FOLLOWS:
        raise ValueError("the byte before a mark is neither 0 nor 1")
    end = 1 + _MARK.size
    term, index, index_term, end_term, end_index, whole = _MARK.unpack_from(rest, 1)
    if whole not in (0, 1):
        raise ValueError("the last byte of a mark is neither 0 nor 1")
    log_end = LogEnd(end_term, end_index)
    return Mark(term, index, index_term, end=log_end, is_whole=whole == 1), rest[end:]


def encode_hello(hello: Hello, opaque: int) -> bytes:
    """Return the first frame of a link."""
    return frames.encode(
        RemotingCommand(code=HELLO_CODE, opaque=opaque, body=msgspec.json.encode(hello))
    )


def decode_hello(body: bytes | memoryview) -> Hello:
    """Read the body of a HELLO. Raises RemoteProtocolError."""
    if len(body) > HELLO_BYTES_MAX:
        raise RemoteProtocolError(
            f"a HELLO of {len(body)} bytes; at most {HELLO_BYTES_MAX} are allowed"
        )
    try:
        return decode_strictly(partial(decode_leniently, Hello), bytes(body))
    except FormatError as error:
        raise RemoteProtocolError(_unreadable_hello(body, error)) from error


def _unreadable_hello(body: bytes | memoryview, error: FormatError) -> str:
    """Return why a HELLO cannot be decoded: it may be that of another version."""
    try:
        version = decode_leniently(_Version, bytes(body)).protocol
    except FormatError:
        version = PROTOCOL
    if version == PROTOCOL:
        return f"the HELLO of a link cannot be read: {error}"
    return (
        f"the sender of a HELLO has protocol version {version}, this member has {PROTOCOL}; "
        "run the same release on all members"
    )


def refusal(hello: Hello, expected: Hello, peers: Container[str]) -> str | None:
    """Return why the sender of a HELLO may not open a link; None if it may.

    `expected` is the HELLO that this member would send to the sender; `peers` are the ids of all
    other members in this member's settings.
    """
    if hello.group != expected.group or hello.receiver_id != expected.sender_id:
        return (
            f"this is {expected.sender_id} of the group {expected.group}, not "
            f"{hello.receiver_id} of the group {hello.group}; check the addresses of the peers"
        )
    if hello.sender_id not in peers:
        return (
            f"{hello.sender_id} is not a peer of {expected.sender_id}: add it to its "
            "DLEDGER_PEERS or DLEDGER_ADDABLE_PEERS"
        )
    if hello.protocol != expected.protocol:
        return (
            f"{hello.sender_id} has protocol version {hello.protocol}, {expected.sender_id} has "
            f"{expected.protocol}; run the same release on all members"
        )
    if hello.segment_size_bytes != expected.segment_size_bytes:
        return (
            f"{hello.sender_id} has segments of {hello.segment_size_bytes} bytes, "
            f"{expected.sender_id} of {expected.segment_size_bytes}; set the same "
            "DLEDGER_SEGMENT_SIZE_BYTES on all members"
        )
    return None
