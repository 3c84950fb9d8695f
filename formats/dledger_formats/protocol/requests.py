"""Bodies of the client protocol: METADATA, APPEND and GET, as JSON that every DLedger shares.

Every body begins with the fields of Java's `RequestOrResponse`. Keys are camelCase in JSON and
snake_case here. A reader ignores unknown keys; a key whose value is None is left out; `code` and
`term` are always written, because a Java reader treats a missing code as success.

`byte[]` has two forms in JSON (`decoding`). `from_json` reads both; `to_json` writes base64 unless
numbers are requested.
"""

import enum
from collections.abc import Sequence
from typing import Any, Final, Self, final

import msgspec

from dledger_formats.json_objects import FormatError
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.decoding import (
    JSON_BYTES_MAX,
    Int32,
    Int64,
    LooseBytes,
    decode_leniently,
    decode_strictly,
    to_bytes,
    with_numbers,
)
from dledger_formats.protocol.entry import DLedgerEntry, LooseEntry
from dledger_formats.protocol.long_body import LongBody, decode_around


# `omit_defaults` leaves a key out if its value is the default, unless the default comes from a
# function. So the fields that use these functions are always written.
def _success() -> DLedgerResponseCode:
    return DLedgerResponseCode.SUCCESS


def _minus_one() -> int:
    return -1


def _zero() -> int:
    return 0


def _no_entries() -> "list[DLedgerEntry]":
    return []


class Message(
    msgspec.Struct, kw_only=True, frozen=True, rename="camel", omit_defaults=True, gc=False
):
    """The fields with which every body begins."""

    code: DLedgerResponseCode = msgspec.field(default_factory=_success)
    """The result of the request; it has no meaning in a request."""
    group: str | None = None
    """The group of the receiver; a member of another group answers UNKNOWN_GROUP."""
    leader_id: str | None = None
    """In a response: the leader that the answering member knows, if any."""
    local_id: str | None = None
    """The sender's id. Our nodes also set it in their answer to METADATA."""
    remote_id: str | None = None
    """In a request: the id of the receiver; any other member answers UNKNOWN_MEMBER."""
    term: Int64 = msgspec.field(default_factory=_minus_one)

    def to_json(self, *, bytes_as_numbers: bool = False) -> bytes:
        """Encode, with `bytes_as_numbers` for Java DLedger 0.4.3, at three times the length."""
        if bytes_as_numbers:
            return msgspec.json.encode(
                with_numbers(msgspec.to_builtins(self, builtin_types=_AS_IS))
            )
        return _ENCODER.encode(self)

    def addressed_to(self, member_id: str | None) -> Self:
        """Return this request for one member; itself if it already names that member."""
        if self.remote_id == member_id:
            return self
        return msgspec.structs.replace(self, remote_id=member_id)

    @classmethod
    def _decode(cls, raw: bytes) -> Self:
        return decode_leniently(cls, raw)


class Request(Message, kw_only=True, frozen=True):
    """The fields of every request. A member decodes it strictly: anyone may have sent it."""

    @final
    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Decode. Raises FormatError if this is not a JSON object, if a key is missing or has
        another type, and for everything that `decode_strictly` refuses, such as a duplicate key.
        """
        if len(raw) <= JSON_BYTES_MAX or "body" not in cls.__struct_fields__:
            return decode_strictly(cls._decode, raw)
        long_body = LongBody(raw)
        while not long_body.read_part():
            pass
        return cls.around(long_body)

    @classmethod
    def around(cls, long_body: LongBody) -> Self:
        """Return the request whose body has been read. Raises FormatError, as `from_json`."""
        return decode_around(cls._decode, long_body)


class Response(Message, kw_only=True, frozen=True):
    """The fields of every response. It is decoded only once and not strictly: it comes from a
    member that the client chose, and many thousands may arrive in a second.
    """

    @final
    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Decode. Raises FormatError if this is not a JSON object, or a key is missing or has
        another type.
        """
        return cls._decode(raw)


class MetadataRequest(Request, kw_only=True, frozen=True):
    """Ask for the members and the leader.

    Our nodes also answer a request without `remote_id`, so that a client need not know an id.
    Java's answer UNKNOWN_MEMBER.
    """


class MetadataResponse(Response, kw_only=True, frozen=True):
    """The answer to METADATA. `leader_id` is None while the answering member knows no leader."""

    peers: dict[str, str] = {}
    """The id and host:port of every member."""
    voters: tuple[str, ...] = ()
    """The voters, according to the answering member's log. This field and those after it are
    extensions of this project's servers.
    """
    learners: tuple[str, ...] = ()
    addable: dict[str, str] = {}
    """The id and host:port of every member that may be added."""
    membership_index: Int64 = -1
    """Index of the entry with the current membership; -1 while that of the settings is in effect.
    """
    joining: bool = False
    """Whether the answering member is joining and so does not vote yet. Omitted if false."""
    group_identity: str = ""
    """Distinguishes the group from others of its name. Omitted if the answering member knows no
    identity.
    """


class AppendEntryRequest(Request, kw_only=True, frozen=True):
    """Append one entry with this body."""

    body: bytes

    def to_json(self, *, bytes_as_numbers: bool = False) -> bytes:
        """Encode. An empty body is `[]` in both forms, because 0.4.3 reads empty base64 as null
        and then fails.
        """
        return super().to_json(bytes_as_numbers=bytes_as_numbers or not self.body)

    @classmethod
    def _decode(cls, raw: bytes) -> Self:
        try:
            return decode_leniently(cls, raw)
        except FormatError:
            loose = decode_leniently(_LooseAppendEntryRequest, raw)
            return cls(**_fields(loose) | {"body": to_bytes(loose.body)})


class AppendEntryResponse(Response, kw_only=True, frozen=True):
    """The answer to APPEND. On SUCCESS a quorum holds the entry."""

    index: Int64 = msgspec.field(default_factory=_minus_one)
    pos: Int64 = msgspec.field(default_factory=_minus_one)


def append_successes(
    group: str, leader_id: str, term: int, first_index: int, positions: Sequence[int]
) -> list[bytes]:
    """Return the JSON of the responses for consecutive entries at these positions.

    They differ only in two numbers, so this takes a third of the time of encoding each.
    """
    sample = AppendEntryResponse(group=group, leader_id=leader_id, term=term, index=0, pos=0)
    before, ends, _ = sample.to_json().rpartition(b'"index":0,"pos":0}')
    assert ends
    form = before.replace(b"%", b"%%") + b'"index":%d,"pos":%d}'
    return [form % numbers for numbers in enumerate(positions, first_index)]


class Consistency(enum.Enum):
    """What a read sees, if any member may answer it."""

    LINEARIZABLE = "linearizable"
    """Every entry that was acknowledged before the read began."""
    STALE = "stale"
    """The entries that the answering member knows to be committed. Others may have been
    acknowledged long ago, if that member is cut off.
    """


class ReadRequest(Request, kw_only=True, frozen=True):
    """The fields of every request for entries."""

    begin_index: Int64
    consistency: Consistency | None = None
    """Lets any member answer. None: only the leader, as in Java; its answers are linearizable."""


class GetEntriesRequest(ReadRequest, kw_only=True, frozen=True):
    """Read entries from `begin_index` on.

    Our nodes return consecutive entries until their bodies would exceed `max_size` bytes or the
    answer a limit of the node, always at least one, and exactly one if `max_size` is 0. Java's
    ignore `max_size` and return one. The client asks again from after the last entry that it
    received.
    """

    max_size: Int32 = msgspec.field(default_factory=_zero)


class GetEntriesResponse(Response, kw_only=True, frozen=True):
    """The answer to GET. On SUCCESS one or more consecutive entries from `begin_index` on."""

    entries: list[DLedgerEntry] = msgspec.field(default_factory=_no_entries)

    @classmethod
    def _decode(cls, raw: bytes) -> Self:
        try:
            return decode_leniently(cls, raw)
        except FormatError:
            loose = decode_leniently(_LooseGetEntriesResponse, raw)
            entries = [entry.strict() for entry in loose.entries]
            return cls(**_fields(loose) | {"entries": entries})


# The same messages with their bytes not decoded yet.


class _LooseAppendEntryRequest(Message, kw_only=True, frozen=True):
    body: LooseBytes


class _LooseGetEntriesResponse(Message, kw_only=True, frozen=True):
    entries: list[LooseEntry]


_AS_IS: Final = (bytes,)
_ENCODER: Final = msgspec.json.Encoder()


def _fields(message: msgspec.Struct) -> dict[str, Any]:
    return msgspec.structs.asdict(message)
