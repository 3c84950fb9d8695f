"""The native dialect: the messages between Python members, as bytes.

A link carries messages one way, from the member that opened it. Its first frame names the sender:

    HELLO    code 52001, JSON body {group, groupIdentity, senderId, receiverId, segmentSizeBytes,
             protocol, newestProtocol, incarnation}
    MESSAGE  code 52000, binary body: see `message_kinds`

Sender and receiver are known from HELLO, so a MESSAGE does not repeat them. Both codes are outside
the range that Java DLedger uses; a Java server answers them with "not supported". HELLO is
answered; a MESSAGE is not.

The layouts of messages have versions. HELLO names the oldest and the newest one that its sender
speaks, and a link is accepted if the receiver speaks one of these. Messages are then written in the
newest version that both speak. So a release that adds a version also speaks the one before, and the
members of a group can be moved to the next or the previous release one by one.
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
from dledger_node.remoting import named_memberships
from dledger_node.remoting.message_kinds import KIND_OF, KINDS, Kind, PeerMessage, to_number

MESSAGE_CODE: Final = 52000
HELLO_CODE: Final = 52001
OLDEST_PROTOCOL: Final = 1
NEWEST_PROTOCOL: Final = 1
"""The versions of messages that this release speaks. Every change of a layout needs a new one.

The answer to HELLO names no version, since there is only one so far. A release that speaks another
one must add it there; an answer without it comes from a member that speaks version 1 only.
"""

Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=255)]
"""The name of a group or a member: short, because a refusal quotes it in the header of a frame."""

HELLO_BYTES_MAX: Final = 4096
"""The longest body of a HELLO; its three names have at most 255 characters each."""
SEED_BYTES: Final = 32
"""Length of an archive's digest."""

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
    """A random number of the sender's start. Links of its earlier incarnations are cut."""
    protocol: Int64
    """The oldest version of messages that the sender speaks."""
    newest_protocol: Int64 = 0
    """The newest one; 0 means that the sender speaks only the oldest."""
    group_identity: Name = ""
    """The identity of the sender's group; empty if it knows none, as in earlier releases."""

    @property
    def protocols(self) -> "_Protocols":
        """The versions of messages that the sender speaks."""
        return _Protocols(self.protocol, self.newest_protocol)


class _Protocols(msgspec.Struct, frozen=True, rename="camel"):
    """The versions in a HELLO: the fields that a HELLO of every release has."""

    protocol: Int64
    newest_protocol: Int64 = 0

    @property
    def newest(self) -> int:
        return max(self.protocol, self.newest_protocol)

    def overlap(self, other: "_Protocols") -> bool:
        """Return whether there is a version that both speak."""
        return self.protocol <= other.newest and other.protocol <= self.newest

    def __str__(self) -> str:
        if self.newest == self.protocol:
            return f"version {self.protocol}"
        return f"versions {self.protocol} to {self.newest}"


OWN_PROTOCOLS: Final = _Protocols(OLDEST_PROTOCOL, NEWEST_PROTOCOL)


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
        parts.append(named_memberships.encode(tail))
    if kind.has_seed:
        parts.append(bytes.fromhex(tail.seed_sha256))
    if kind.payload == "data":
        entries = (tail.data,)
    head = b"".join(parts)
    body_bytes = len(head) + sum(map(len, entries))
    length = frames.LENGTH_WORD_BYTES + len(_HEADER) + body_bytes
    return [_PREFIX.pack(length, len(_HEADER)) + _HEADER + head, *entries]


def decode(body: bytes | memoryview, sender: str, receiver: str) -> PeerMessage:
    """Read one message. Raises RemoteProtocolError if the bytes are not a message.

    The entries of a push and the data of a SnapshotChunk are left as a view into `body`, unread.
    `store.log.block` checks the entries.
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
        memberships, rest = named_memberships.decode(kind.message, rest)
        named |= memberships
    if kind.has_seed:
        named["seed_sha256"], rest = bytes(rest[:SEED_BYTES]).hex(), rest[SEED_BYTES:]
        if len(named["seed_sha256"]) not in (0, 2 * SEED_BYTES):
            raise ValueError("the digest of an archive has another length")
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
    """Return why a HELLO cannot be decoded: it may be that of another release."""
    try:
        protocols = decode_leniently(_Protocols, bytes(body))
    except FormatError:
        protocols = OWN_PROTOCOLS
    if protocols.overlap(OWN_PROTOCOLS):
        return f"the HELLO of a link cannot be read: {error}"
    return _no_common_protocol("the sender of a HELLO", protocols, "this member", OWN_PROTOCOLS)


def _no_common_protocol(sender: str, theirs: _Protocols, receiver: str, own: _Protocols) -> str:
    return (
        f"{sender} speaks {theirs} of the protocol between members, {receiver} {own}; run a "
        "release on all members that speaks both, and then the next one"
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
    if not hello.protocols.overlap(expected.protocols):
        return _no_common_protocol(
            hello.sender_id, hello.protocols, expected.sender_id, expected.protocols
        )
    if hello.segment_size_bytes != expected.segment_size_bytes:
        return (
            f"{hello.sender_id} has segments of {hello.segment_size_bytes} bytes, "
            f"{expected.sender_id} of {expected.segment_size_bytes}; set the same "
            "DLEDGER_SEGMENT_SIZE_BYTES on all members"
        )
    return None
