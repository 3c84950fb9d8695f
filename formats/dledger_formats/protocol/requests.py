"""Bodies of the client protocol: METADATA, APPEND and GET, as JSON, the same in every DLedger.

Every body begins with the fields of Java's `RequestOrResponse`. Keys are camelCase in JSON and
snake_case here. Readers ignore keys that they do not know; a key whose value is None is left out;
`code` and `term` are always written, because a Java reader takes an absent code for success.

`byte[]` is base64 in JSON, except in Java DLedger 0.4.3, which writes and reads only arrays of
signed numbers; every other version reads both. `from_json` reads both, and base64 without its
padding; `to_json` writes base64 unless it is asked for numbers.
"""

import base64
import enum
import re
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Final, Self, TypeAlias, TypeVar

import msgspec

from dledger_formats.json_objects import FormatError
from dledger_formats.log import disk


class RequestCode(enum.IntEnum):
    """What a request asks: the code in its frame (`DLedgerRequestCode`)."""

    METADATA = 50000
    APPEND = 50001
    GET = 50002
    VOTE = 51001
    HEART_BEAT = 51002
    PULL = 51003
    PUSH = 51004
    LEADERSHIP_TRANSFER = 51005
    INSTALL_SNAPSHOT = 51006
    USER_DEFINE_REQUEST = 59999


class SystemCode(enum.IntEnum):
    """The code in a response's frame (`RemotingSysResponseCode`); DLedger's own is in the body.

    All but SUCCESS come with an empty body, and with a remark that says why.
    """

    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    SUCCESS = 200


class DLedgerResponseCode(enum.IntEnum):
    """The `code` in a response's body. A number that is not listed reads as UNKNOWN."""

    UNKNOWN = -1
    SUCCESS = 200
    TIMEOUT = 300
    METADATA_ERROR = 301
    NETWORK_ERROR = 302
    UNSUPPORTED = 303
    UNKNOWN_GROUP = 400
    UNKNOWN_MEMBER = 401
    UNEXPECTED_MEMBER = 402
    EXPIRED_TERM = 403
    NOT_LEADER = 404
    NOT_FOLLOWER = 405
    INCONSISTENT_STATE = 406
    INCONSISTENT_TERM = 407
    INCONSISTENT_INDEX = 408
    INCONSISTENT_LEADER = 409
    INDEX_OUT_OF_RANGE = 410
    UNEXPECTED_ARGUMENT = 411
    REPEATED_REQUEST = 412
    REPEATED_PUSH = 413
    DISK_ERROR = 414
    DISK_FULL = 415
    TERM_NOT_READY = 416
    FALL_BEHIND_TOO_MUCH = 417
    TAKE_LEADERSHIP_FAILED = 418
    INDEX_LESS_THAN_LOCAL_BEGIN = 419
    REQUEST_WITH_EMPTY_BODYS = 420
    PUSH_REQUEST_IS_FULL = 421
    NEWER_INSTALL_SNAPSHOT_REQUEST_EXIST = 422
    INTERNAL_ERROR = 500
    TERM_CHANGED = 501
    WAIT_QUORUM_ACK_TIMEOUT = 502
    """Not acknowledged in time. The entry is in the leader's log and may still be committed."""
    LEADER_PENDING_FULL = 503
    ILLEGAL_MEMBER_STATE = 504
    LEADER_NOT_READY = 505
    LEADER_TRANSFERRING = 506
    LOAD_SNAPSHOT_ERROR = 507
    INSTALL_SNAPSHOT_ERROR = 508
    UNKNOWN_PRODUCER = 601
    """From here on, codes of our own (`producers`): the group does not remember this producer."""
    SEQUENCE_TOO_OLD = 602
    """It lies below what is remembered of its producer."""
    SEQUENCE_TOO_NEW = 603
    """It lies too far above what the answering member's log has of its producer."""
    MEMBERSHIP_CHANGING = 611
    """From here on, of `membership_change`: an earlier change is not committed yet."""
    NO_SUCH_MEMBER = 612
    """Nobody whom to change; or it is to be added, and the settings do not know it."""
    LAST_VOTER = 613
    QUORUM_AT_RISK = 614
    """The voters that are well now would be no majority of those that there would be."""
    TOO_MANY_MEMBERS = 615

    @classmethod
    def _missing_(cls, value: object) -> "DLedgerResponseCode":
        return cls.UNKNOWN


NOT_APPENDED: Final = frozenset(
    {
        DLedgerResponseCode.UNKNOWN_GROUP,
        DLedgerResponseCode.UNKNOWN_MEMBER,
        DLedgerResponseCode.NOT_LEADER,
        DLedgerResponseCode.DISK_FULL,
        DLedgerResponseCode.LEADER_PENDING_FULL,
        DLedgerResponseCode.LEADER_NOT_READY,
        DLedgerResponseCode.LEADER_TRANSFERRING,
        DLedgerResponseCode.UNKNOWN_PRODUCER,
        DLedgerResponseCode.SEQUENCE_TOO_OLD,
        DLedgerResponseCode.SEQUENCE_TOO_NEW,
    }
)
"""An APPEND that is answered so was not appended and never will be.

Clients send it again on the strength of this, so a node answers so only before it proposes the
entry. One that is proposed and then loses its fate, as by a change of leaders, is answered
WAIT_QUORUM_ACK_TIMEOUT or TERM_CHANGED.
"""

Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


# `omit_defaults` leaves a key out when its value is the default, but a default that comes from a
# function does not count: so the fields that use these are always written.
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
    """What every body begins with."""

    code: DLedgerResponseCode = msgspec.field(default_factory=_success)
    """Means nothing in a request."""
    group: str | None = None
    """A member of another group answers UNKNOWN_GROUP."""
    leader_id: str | None = None
    """In a response: the leader that the answering member knows of, if any."""
    local_id: str | None = None
    """The sender's id. Our nodes also name themselves so in their answer to METADATA."""
    remote_id: str | None = None
    """In a request: the id of the member that it is meant for; another answers UNKNOWN_MEMBER."""
    term: Int64 = msgspec.field(default_factory=_minus_one)

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Decode; FormatError when this is no JSON object, or a key is missing or mistyped."""
        return _decode(cls, raw)

    def addressed_to(self, member_id: str | None) -> Self:
        """The same request for one member; itself when it is that already."""
        if self.remote_id == member_id:
            return self
        return msgspec.structs.replace(self, remote_id=member_id)

    def to_json(self, *, bytes_as_numbers: bool = False) -> bytes:
        """Encode; `bytes_as_numbers` for Java DLedger 0.4.3, at three times the length."""
        if bytes_as_numbers:
            return msgspec.json.encode(
                _with_numbers(msgspec.to_builtins(self, builtin_types=_AS_IS))
            )
        return _ENCODER.encode(self)


class MetadataRequest(Message, kw_only=True, frozen=True):
    """Who are the members, and who leads?

    Our nodes also answer one without `remote_id`, so that a client needs to know no id before it
    asks; Java's answer UNKNOWN_MEMBER.
    """


class MetadataResponse(Message, kw_only=True, frozen=True):
    """`leader_id` is None while the answering member knows no leader."""

    peers: dict[str, str] = {}
    """Every member's id and host:port."""
    voters: tuple[str, ...] = ()
    """From here on, of our own servers alone: who votes, by the answering member's log."""
    learners: tuple[str, ...] = ()
    addable: dict[str, str] = {}
    """Who is no member and may be added, with host:port."""
    membership_index: Int64 = -1
    """The entry that says who belongs to the group; -1 while those of the settings do."""
    joining: bool = False
    """It does not vote yet. Left out of the JSON when it does."""


class AppendEntryRequest(Message, kw_only=True, frozen=True):
    """Append one entry with this body."""

    body: bytes

    def to_json(self, *, bytes_as_numbers: bool = False) -> bytes:
        """Encode as all messages; no bytes are `[]` in both forms, since 0.4.3 reads the empty
        base64 as null and then fails.
        """
        return super().to_json(bytes_as_numbers=bytes_as_numbers or not self.body)

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Decode as all messages, the body also from numbers and from base64 without padding."""
        try:
            return _decode(cls, raw)
        except FormatError:
            loose = _decode(_LooseAppendEntryRequest, raw)
            return cls(**_fields(loose) | {"body": _to_bytes(loose.body)})


class AppendEntryResponse(Message, kw_only=True, frozen=True):
    """On SUCCESS a quorum holds the entry."""

    index: Int64 = msgspec.field(default_factory=_minus_one)
    pos: Int64 = msgspec.field(default_factory=_minus_one)


def append_successes(
    group: str, leader_id: str, term: int, first_index: int, positions: Sequence[int]
) -> list[bytes]:
    """The JSON of AppendEntryResponses for entries that follow one another, at these positions.

    They differ in two numbers; so they take a third of the time that encoding each would.
    """
    sample = AppendEntryResponse(group=group, leader_id=leader_id, term=term, index=0, pos=0)
    before, ends, _ = sample.to_json().rpartition(b'"index":0,"pos":0}')
    assert ends
    form = before.replace(b"%", b"%%") + b'"index":%d,"pos":%d}'
    return [form % numbers for numbers in enumerate(positions, first_index)]


class GetEntriesRequest(Message, kw_only=True, frozen=True):
    """Read from `begin_index` on.

    Our nodes return consecutive entries until their bodies would exceed `max_size` bytes, always at
    least one, and exactly one when `max_size` is 0. Java's ignore it and always return one. So ask
    again behind the last entry that came.
    """

    begin_index: Int64
    max_size: Int32 = msgspec.field(default_factory=_zero)


class DLedgerEntry(msgspec.Struct, kw_only=True, frozen=True, rename="camel", gc=False):
    """One entry as it travels. Java's equality ignores both checksums, and Java sends them as 0."""

    body: bytes
    body_crc: Int32
    """As in `disk`, but signed, since Java reads it into an int; 0 for "not covered"."""
    chain_crc: Int32
    channel: Int32
    index: Int64
    magic: Int32
    """disk.NORMAL or disk.NOOP"""
    pos: Int64
    size: Int32
    """48 + the length of the body"""
    term: Int64

    @classmethod
    def from_disk(cls, header: disk.EntryHeader, body: bytes) -> Self:
        """The entry that is stored with this header."""
        return cls(
            body=body,
            body_crc=_signed(header.body_crc),
            chain_crc=_signed(header.chain_crc),
            channel=header.channel,
            index=header.index,
            magic=header.magic,
            pos=header.pos,
            size=header.size,
            term=header.term,
        )

    @property
    def is_intact(self) -> bool:
        """Whether the body is what its checksum says, if there is one."""
        return self.body_crc in (0, _signed(disk.body_crc(self.body)))


class GetEntriesResponse(Message, kw_only=True, frozen=True):
    """On SUCCESS one entry or more, with consecutive indexes from `begin_index` on."""

    entries: list[DLedgerEntry] = msgspec.field(default_factory=_no_entries)

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Decode as all messages, bodies also from numbers and from base64 without padding."""
        try:
            return _decode(cls, raw)
        except FormatError:
            loose = _decode(_LooseGetEntriesResponse, raw)
            entries = [
                DLedgerEntry(**_fields(entry) | {"body": _to_bytes(entry.body)})
                for entry in loose.entries
            ]
            return cls(**_fields(loose) | {"entries": entries})


def reads_numbers(append: bytes) -> bool | None:
    """Whether the sender of an APPEND, given as it came, reads bytes only as numbers.

    None when it has no bytes to tell by.
    """
    # A quote inside of a JSON string is escaped: this can only be a key and its value's begin.
    begin = _BODY_BEGIN.search(append)
    return begin[1] == b"[" if begin else None


# The same messages with their bytes as they come. Types, and not a walk over any JSON there is,
# keep what a hostile body may cost in proportion to its length.
_LooseBytes: TypeAlias = str | list[Annotated[int, msgspec.Meta(ge=-128, le=255)]]


class _LooseAppendEntryRequest(Message, kw_only=True, frozen=True):
    body: _LooseBytes


class _LooseEntry(DLedgerEntry, kw_only=True, frozen=True):
    body: _LooseBytes  # type: ignore[assignment]


class _LooseGetEntriesResponse(Message, kw_only=True, frozen=True):
    entries: list[_LooseEntry]


_AS_IS: Final = (bytes,)
_BODY_BEGIN: Final = re.compile(rb'"body"\s*:\s*(["[])[^]"]')
_ENCODER: Final = msgspec.json.Encoder()
_StructT = TypeVar("_StructT", bound=msgspec.Struct)


@cache
def _decoder(cls: type[_StructT]) -> msgspec.json.Decoder[_StructT]:
    return msgspec.json.Decoder(cls)


def _decode(cls: type[_StructT], raw: bytes) -> _StructT:
    try:
        decoder: msgspec.json.Decoder[_StructT] = _decoder(cls)
        return decoder.decode(raw)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{cls.__name__.removeprefix('_Loose')}: {error}") from error


def _fields(message: msgspec.Struct) -> dict[str, Any]:
    return msgspec.structs.asdict(message)


def _to_bytes(loose: _LooseBytes) -> bytes:
    if isinstance(loose, list):
        return bytes(number & 0xFF for number in loose)
    try:
        return base64.b64decode(loose + "=" * (-len(loose) % 4), validate=True)
    except ValueError as error:
        raise FormatError(f"not base64: {error}") from error


def _with_numbers(value: Any) -> Any:
    """Replace all bytes in plain JSON values by lists of signed numbers."""
    if isinstance(value, bytes):
        return list(memoryview(value).cast("b"))
    if isinstance(value, dict):
        return {key: _with_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_numbers(item) for item in value]
    return value


def _signed(crc: int) -> int:
    """The same 32 bits as a signed number."""
    return crc - (1 << 32) if crc >> 31 else crc
