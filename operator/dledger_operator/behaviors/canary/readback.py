"""What an answer to the read of an acknowledged canary means. Pure."""

import enum
from dataclasses import dataclass

from dledger_formats.log.canaries import is_canary
from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_formats.protocol.requests import GetEntriesResponse


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A canary that a quorum held."""

    index: int
    term: int


class Readback(enum.Enum):
    """What has become of an acknowledged canary."""

    THERE = "There"
    REMOVED = "Removed"
    """Retention has removed it with all entries before it."""
    LOST = "Lost"
    """The leader's log ends before it, or another entry is in its place."""
    UNKNOWN = "Unknown"
    """The answer is a refusal."""


def judge(canary: Acknowledged, answer: GetEntriesResponse) -> Readback:
    """Judge the leader's answer to the read of a canary's index.

    A leader answers that an index is beyond its log only once it has proved that it leads.
    """
    match answer.code:
        case DLedgerResponseCode.SUCCESS if answer.entries:
            entry = answer.entries[0]
            same = Acknowledged(entry.index, entry.term) == canary
            kept = same and is_canary(entry.magic, entry.channel)
            return Readback.THERE if kept else Readback.LOST
        case DLedgerResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN:
            return Readback.REMOVED
        case DLedgerResponseCode.INDEX_OUT_OF_RANGE:
            return Readback.LOST
        case _:
            return Readback.UNKNOWN
