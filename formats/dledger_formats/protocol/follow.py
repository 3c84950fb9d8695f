"""FOLLOW, a request of our own: read committed entries, or wait for them.

    request    {group, remoteId, beginIndex, maxSize, waitMs}
    response   {code, group, leaderId, term, entries, ledgerBeginIndex, committedIndex}

The leader answers as soon as the entry `beginIndex` is committed, with it and those behind it until
their bodies would exceed `maxSize` bytes, at least one; or after `waitMs`, or sooner when it must,
with no entries. A `beginIndex` of -1 asks for the two ends alone and is answered at once.

Codes: SUCCESS; NOT_LEADER, also when the leadership ends while the request waits;
INDEX_LESS_THAN_LOCAL_BEGIN; UNKNOWN_GROUP and UNKNOWN_MEMBER as everywhere. Java's servers do not
know the request and answer REQUEST_CODE_NOT_SUPPORTED; there, GET says INDEX_OUT_OF_RANGE behind
the end.
"""

from typing import Final

import msgspec

from dledger_formats.protocol.requests import GetEntriesResponse, Int32, Int64, Message

FOLLOW: Final = 52010
"""The request's code in its frame, among those that are ours (52000 to 52999)."""
WAIT_MS_MAX: Final = 30_000
"""A longer `waitMs` is taken for this."""
ONLY_THE_ENDS: Final = -1


def _minus_one() -> int:
    return -1


def _zero() -> int:
    return 0


class FollowRequest(Message, kw_only=True, frozen=True):
    """Read from `begin_index` on, or wait for it."""

    begin_index: Int64
    max_size: Int32 = msgspec.field(default_factory=_zero)
    wait_ms: Int32 = msgspec.field(default_factory=_zero)


class FollowResponse(GetEntriesResponse, kw_only=True, frozen=True):
    """On SUCCESS no entry, or consecutive ones from `begin_index` on."""

    ledger_begin_index: Int64 = msgspec.field(default_factory=_minus_one)
    """First index that the leader still holds."""
    committed_index: Int64 = msgspec.field(default_factory=_minus_one)
    """Last index that may be read; -1 when the log is empty."""
