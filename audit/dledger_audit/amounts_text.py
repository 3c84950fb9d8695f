"""What compaction would drop, as lines of the text report and as cells of the page."""

from collections.abc import Iterator
from typing import Final

from dledger_audit.compaction.amounts import Amounts, SegmentAmounts

SEGMENTS_SHOWN_MAX: Final = 400
COLUMNS: Final = ("segment", "entries", "live bytes", "tombstone bytes", "dead bytes", "dead")


def lines(amounts: Amounts | None) -> Iterator[str]:
    """Yield lines of the report; none if the audit did not read any member."""
    if amounts is None:
        return
    yield f"compaction: {summary(amounts)}"
    for each in shown(amounts):
        cells = zip(COLUMNS[1:], row(each)[1:], strict=True)
        yield f"  {each.segment}: " + ", ".join(f"{name} {cell}" for name, cell in cells)


def summary(amounts: Amounts) -> str:
    """Return the totals of all segments, or why they are not known."""
    if amounts.problem:
        return f"not known: {amounts.problem}"
    live = sum(each.live_bytes for each in amounts.segments)
    young = sum(each.tombstone_bytes for each in amounts.segments)
    dead = sum(each.dead_bytes for each in amounts.segments)
    return (
        f"up to entry {amounts.clean_index:,}, bodies of {live:,} bytes are live, of {young:,} are "
        f"tombstones, and of {dead:,} are dead by the decoder {amounts.decoder}"
    )


def shown(amounts: Amounts) -> list[SegmentAmounts]:
    """Return the segments to show, the newest first."""
    return amounts.segments[: -SEGMENTS_SHOWN_MAX - 1 : -1]


def row(each: SegmentAmounts) -> tuple[str, ...]:
    """Return the cells of COLUMNS for a segment."""
    whole = each.live_bytes + each.tombstone_bytes + each.dead_bytes
    share = f"{100 * each.dead_bytes / whole:.0f} %" if whole else "-"
    numbers = (each.live_bytes, each.tombstone_bytes, each.dead_bytes)
    entries = f"{each.first_index:,}-{each.last_index:,}"
    return (each.segment, entries, *(f"{number:,}" for number in numbers), share)
