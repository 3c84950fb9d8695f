"""FOLLOW, an extension of this project: read committed entries, or wait for them.

    request    {group, remoteId, beginIndex, consistency, maxSize, waitMs}
    response   {code, group, leaderId, term, entries, ledgerBeginIndex, committedIndex}

The leader, or any member if the request has a `consistency`, answers as soon as the entry
`beginIndex` is committed, with consecutive entries until their bodies would exceed `maxSize` bytes,
at least one. Where many requests wait, it may answer up to 100 ms later, with more entries. After
`waitMs`, or earlier if too many requests wait, it answers without entries. A `beginIndex` of -1
requests only the two indexes of the response. That answer, and one to a request for a later entry
that does not wait, has the committed index of a leader that has proved, after the request arrived,
that it still leads. Another member's committed index is at least that of its leader at that time. A
stale answer proves nothing; it has no `leaderId` if the member hears no leader.

Codes: SUCCESS; NOT_LEADER, also if the leadership ends, or the member's leader is lost, while the
request waits; LEADER_PENDING_FULL; FALL_BEHIND_TOO_MUCH if a member did not reach its leader's
index in time; INDEX_LESS_THAN_LOCAL_BEGIN; UNKNOWN_GROUP and UNKNOWN_MEMBER as for every
request. Java's servers do not have this request and answer REQUEST_CODE_NOT_SUPPORTED; their answer
to a GET after the end is INDEX_OUT_OF_RANGE.
"""

from typing import Final

import msgspec

from dledger_formats.protocol.decoding import Int32, Int64
from dledger_formats.protocol.requests import GetEntriesResponse, ReadRequest

FOLLOW: Final = 52010
"""The request's code in its frame, from this project's range (52000 to 52999)."""
WAIT_MS_MAX: Final = 30_000
"""The longest wait; a larger `waitMs` is reduced to it."""
ONLY_THE_ENDS: Final = -1


def _minus_one() -> int:
    return -1


def _zero() -> int:
    return 0


class FollowRequest(ReadRequest, kw_only=True, frozen=True):
    """Read entries from `begin_index` on, or wait for that entry."""

    max_size: Int32 = msgspec.field(default_factory=_zero)
    wait_ms: Int32 = msgspec.field(default_factory=_zero)


class FollowResponse(GetEntriesResponse, kw_only=True, frozen=True):
    """On SUCCESS no entry, or consecutive ones from `begin_index` on."""

    ledger_begin_index: Int64 = msgspec.field(default_factory=_minus_one)
    """The first index that the leader still has."""
    committed_index: Int64 = msgspec.field(default_factory=_minus_one)
    """The last index that may be read; -1 if no entry is committed."""
