"""The byte layout of each message between members: one number and one layout for each type.

    kind        1 byte, the number of the message's type
    numbers     the fields of fixed size, big-endian
    mark        1 byte, 0 or 1; after a 1, the mark's five numbers and 1 byte for its flag
    memberships see `named_memberships`
    seed        all remaining bytes: the 32 of a digest, or none
    payload     all remaining bytes

Every message has the first two parts. Its `Kind` determines which of the others follow.
"""

import struct
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final, TypeAlias

from dledger_node.raft.messages import (
    AppendRequest,
    CompareRequest,
    HeartBeatRequest,
    HeartBeatResponse,
    HeldByAllNotice,
    InstallSnapshotRequest,
    JoinRequest,
    JoinResponse,
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
from dledger_node.raft.recall_messages import RecallRequest, RecallResponse
from dledger_node.remoting.read_index_messages import ReadIndexRequest, ReadIndexResponse
from dledger_node.remoting.snapshot_messages import SnapshotChunk, SnapshotChunkRequest

PeerMessage: TypeAlias = (
    Message | SnapshotChunkRequest | SnapshotChunk | ReadIndexRequest | ReadIndexResponse
)
"""A message that a link carries."""
NO_PROBE: Final = -1

_FLAGS: Final = (False, True)
_FLAG_FIELDS: Final = frozenset(("take_leadership", "leading", "joining", "alone", "full"))
_RESULTS: Final[dict[type[PeerMessage], tuple[Any, ...]]] = {
    VoteResponse: tuple(VoteResult),
    PreVoteResponse: tuple(VoteResult),
    PushResponse: tuple(PushResult),
}
_NUMBERS_OF_RESULTS: Final = {
    result: number for results in _RESULTS.values() for number, result in enumerate(results)
}


class Kind:
    """The layout of one type of message. Everything that depends on the type alone is computed
    once, because every push needs it.
    """

    __slots__ = (
        "fields", "has_mark", "has_memberships", "has_seed", "meanings", "message", "number",
        "numbers", "payload", "values_of",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        message: type[PeerMessage],
        number_format: str,
        fields: str,
        *,
        has_mark: bool = False,
        has_memberships: bool = False,
        has_seed: bool = False,
        payload: str | None = None,
    ) -> None:
        """`number_format` is in the notation of `struct`, with one letter for each name in
        `fields`. `payload` is the field that holds the remaining bytes.
        """
        self.number = number
        self.message = message
        self.numbers = struct.Struct(">" + number_format)
        self.fields = tuple(fields.split())
        self.has_mark = has_mark
        self.has_memberships = has_memberships
        self.has_seed = has_seed
        self.payload = payload
        self.values_of = _values_of(self.fields)
        self.meanings = tuple(
            (field, meaning)
            for field in self.fields
            if (meaning := _meaning(message, field)) is not None
        )


def to_number(value: object) -> int:
    """Return the number that encodes a flag, a result or a missing probe."""
    if value is None:
        return NO_PROBE
    return int(value) if isinstance(value, bool) else _NUMBERS_OF_RESULTS[value]


def _values_of(fields: tuple[str, ...]) -> Callable[[PeerMessage], tuple[object, ...]]:
    get = attrgetter(*fields)
    return get if len(fields) > 1 else lambda message: (get(message),)


def _meaning(message: type[PeerMessage], field: str) -> Callable[[int], Any] | None:
    """Return the function from a field's number to its value; None if the number is the value."""
    if field == "result":
        return _RESULTS[message].__getitem__
    if field in _FLAG_FIELDS:
        return _FLAGS.__getitem__
    return _probe if field == "probe" else None


def _probe(number: int) -> int | None:
    return None if number == NO_PROBE else number


def _by_number(kinds: Iterable[Kind]) -> dict[int, Kind]:
    table: dict[int, Kind] = {}
    for kind in kinds:
        assert kind.number not in table, f"two messages have the number {kind.number}"
        table[kind.number] = kind
    return table


KINDS: Final = _by_number((
    Kind(1, PreVoteRequest, "qqq", "term ledger_end_index ledger_end_term"),
    Kind(2, PreVoteResponse, "qqB", "term requested_term result"),
    Kind(3, VoteRequest, "qqqB", "term ledger_end_index ledger_end_term take_leadership"),
    Kind(4, VoteResponse, "qqB", "term requested_term result"),
    Kind(5, HeartBeatRequest, "qqq", "term committed_index round"),
    Kind(6, HeartBeatResponse, "qqBB", "term round joining full"),
    Kind(7, CompareRequest, "qqqqq", "term index index_term committed_index probe"),
    Kind(
        8, AppendRequest, "qqqqqqq",
        "term previous_index previous_term first_index last_index entries_term committed_index",
        has_memberships=True, payload="entries",
    ),
    Kind(
        9, InstallSnapshotRequest, "qqqqq",
        "term first_index last_index entries_term committed_index",
        has_memberships=True, payload="entries",
    ),
    Kind(
        10, PushResponse, "qqBqqqqq",
        "term requested_term result match_index ledger_end_index conflict_term conflict_index "
        "probe",
    ),
    Kind(11, TakeLeadershipRequest, "q", "term"),
    Kind(12, JoinRequest, "qq", "term incarnation", has_seed=True),
    Kind(
        13, JoinResponse, "qqqBBB", "term incarnation ledger_end_index leading joining alone",
        has_memberships=True, has_seed=True,
    ),
    Kind(14, RecallRequest, "qq", "term incarnation"),
    Kind(15, RecallResponse, "qq", "term incarnation", has_mark=True, has_memberships=True),
    # From 64 on, messages that the shells exchange and the core never sees.
    Kind(64, HeldByAllNotice, "qq", "term index"),
    Kind(65, SnapshotChunkRequest, "qq", "index offset"),
    Kind(
        66, SnapshotChunk, "qqqqq",
        "last_included_index last_included_term data_bytes data_crc32 offset",
        payload="data",
    ),
    Kind(67, ReadIndexRequest, "qq", "incarnation round"),
    Kind(68, ReadIndexResponse, "qqq", "incarnation round index"),
))  # fmt: skip
"""The kinds by number."""
KIND_OF: Final = {kind.message: kind for kind in KINDS.values()}
"""The kinds by type of message."""

assert len(KIND_OF) == len(KINDS), "one number for each message"
