"""What retention removes next, as lines of the text report."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from dledger_audit.checks.next_removal import HeldBy, NextRemoval, Outlook
from dledger_formats.http.retention import RemovalRule

SEGMENTS_SHOWN_MAX: Final = 5
"""Sealed segments of one member that are shown one by one."""
_VOTERS_SHOWN_MAX: Final = 3


def lines(outlooks: Sequence[Outlook]) -> Iterator[str]:
    """Render what each member removes next; nothing if no retention is set anywhere."""
    if all(outlook.keeps_everything for outlook in outlooks):
        return
    yield "Next removals"
    for outlook in outlooks:
        yield f"{outlook.member}: {_round(outlook)}"
        for planned in outlook.segments[:SEGMENTS_SHOWN_MAX]:
            yield f"  segment {planned.segment}, {_range(planned)}: {_segment(planned)}"
        if more := outlook.segments[SEGMENTS_SHOWN_MAX:]:
            yield f"  and {len(more):,} more sealed segments, to entry {more[-1].last_index:,}"


def _round(outlook: Outlook) -> str:
    if outlook.keeps_everything:
        return "keeps everything, since no retention is set"
    found = outlook.next_round
    if not found.segments:
        return "removes nothing now"
    count = "1 segment" if found.segments == 1 else f"{found.segments} segments"
    last_index = outlook.segments[found.segments - 1].last_index
    forced = ", although a voter may lack its entries" if found.is_forced else ""
    return f"removes {count} now, to entry {last_index:,}, by rule {found.rule}{forced}"


def _segment(planned: NextRemoval) -> str:
    due = f"due by rule {planned.rule}" if planned.is_due else _later(planned)
    reasons = list(_held_by(planned))
    return f"{due}; held back: {', '.join(reasons)}" if reasons else due


def _later(planned: NextRemoval) -> str:
    parts = []
    if planned.due_at_ms is not None:
        parts.append(f"due by rule {planned.rule} on {_time(planned.due_at_ms)}")
    if planned.due_after_bytes is not None:
        growth = f"{planned.due_after_bytes:,} bytes"
        parts.append(f"due by rule {RemovalRule.SIZE} when the log has grown by {growth}")
    return ", or ".join(parts) if parts else "never due"


def _held_by(planned: NextRemoval) -> Iterator[str]:
    if HeldBy.COMMIT in planned.held_by:
        yield "the next entry is not committed yet"
    if HeldBy.STATE in planned.held_by:
        yield "the state still needs it"
    if HeldBy.VOTERS in planned.held_by and planned.rule is not RemovalRule.FORCE:
        yield from _voters(planned)


def _voters(planned: NextRemoval) -> Iterator[str]:
    if not planned.lagging:
        yield "the leader has not reported yet that all voters hold it"
    for voter, index in list(planned.lagging.items())[:_VOTERS_SHOWN_MAX]:
        yield f"{voter} holds entries up to {index:,}" if index >= 0 else f"{voter} was not read"


def _range(planned: NextRemoval) -> str:
    return f"entries {planned.first_index:,}-{planned.last_index:,}"


def _time(at_ms: int) -> str:
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms after 1970"
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
