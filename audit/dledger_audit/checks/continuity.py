"""Check that every member's log is unbroken from its begin index to its committed index.

The decoder has checked the entries within each segment; this module checks how segments connect.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from dledger_audit.checks.electorate import Held
from dledger_audit.checks.findings import Run, check_name, run_of
from dledger_audit.checks.table import DigestTable
from dledger_audit.verdict import CRITICAL
from pyspark_dledger.layout import DAMAGED, Flag


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One segment as it was read. The terms are those of its sound entries; -1 if it has none."""

    segment: int
    first_index: int
    last_index: int
    first_term: int
    last_term: int


def spans(table: DigestTable) -> dict[str, list[Span]]:
    """Reduce the rows of each member's segments, in order."""
    found: dict[str, list[Span]] = {}
    for member, segment, rows in table.segments():
        sound = rows.pick(~rows.has(DAMAGED))
        last = int(np.argmax(sound.last_index)) if len(sound) else -1
        found.setdefault(member, []).append(
            Span(
                segment=segment,
                first_index=int(rows.first_index.min()),
                last_index=int(rows.last_index.max()),
                first_term=int(sound.first_term[0]) if len(sound) else -1,
                last_term=int(sound.last_term[last]) if len(sound) else -1,
            )
        )
    return found


def continuity(
    found: Mapping[str, list[Span]],
    held: Mapping[str, Held],
    sizes: Mapping[str, Mapping[int, int]],
) -> Iterator[Run]:
    """Yield gaps, repetitions and decreasing terms.

    `found` holds what was read, `held` what each member should hold, and `sizes` the sizes of its
    data files in bytes, by position.
    """
    for member, expected in held.items():
        yield from _of_member(member, found.get(member, []), expected, sizes.get(member, {}))


def _of_member(
    member: str, found: list[Span], held: Held, sizes: Mapping[int, int]
) -> Iterator[Run]:
    begin = max(held.first, 0)  # -1 for an empty log
    expected, term, end_pos = begin, -1, None
    for span in found:
        here, first = span.segment, span.first_index
        if end_pos is not None and here != end_pos:
            yield run_of(
                "missing_segment", CRITICAL, expected, first - 1, member=member, segment=end_pos
            )
        elif first > expected:
            yield run_of(
                "missing_entries", CRITICAL, expected, first - 1, member=member, segment=here
            )
        if first < expected:
            yield run_of(
                "repeated_entries", CRITICAL, first, expected - 1, member=member, segment=here
            )
        if -1 < span.first_term < term:
            yield run_of(
                check_name(Flag.TERM_BACK), CRITICAL, first, first, member=member, segment=here
            )
        expected = span.last_index + 1
        term = span.last_term if span.last_term >= 0 else term
        end_pos = here + sizes[here] if here in sizes else None
    if expected <= held.last:
        yield run_of(
            "missing_entries",
            CRITICAL,
            expected,
            held.last,
            member=member,
            segment=found[-1].segment if found else -1,
        )
