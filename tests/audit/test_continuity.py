"""Continuity between segments: every way in which they can fail to connect."""

from dledger_audit.checks.continuity import Span, continuity
from dledger_audit.checks.electorate import Held

SIZE = 1000

# For each member: begin index, committed index, and segments (number, first, last, two terms).
SAYS = {
    "whole": (0, 299, [(0, 0, 99, 1, 1), (1, 100, 199, 1, 2), (2, 200, 299, 2, 2)]),
    "gap": (0, 299, [(0, 0, 99, 1, 1), (2, 200, 299, 2, 2)]),
    "jump": (0, 299, [(0, 0, 99, 1, 1), (1, 120, 299, 1, 2)]),
    "repeat": (0, 299, [(0, 0, 99, 1, 1), (1, 90, 299, 1, 2)]),
    "back": (0, 299, [(0, 0, 99, 1, 3), (1, 100, 299, 2, 3)]),
    "headless": (0, 299, [(1, 100, 199, 1, 2), (2, 200, 299, 2, 2)]),
    "late": (100, 299, [(1, 100, 199, 1, 2), (2, 200, 299, 2, 2)]),
    "short": (0, 299, [(0, 0, 99, 1, 1), (1, 100, 249, 1, 2)]),
    "bare": (0, 299, []),
    "empty": (-1, -1, []),
}
EXPECTED = {
    ("gap", "missing_segment", "1000", 100, 199),
    ("jump", "missing_entries", "1000", 100, 119),
    ("repeat", "repeated_entries", "1000", 90, 99),
    ("back", "term_back", "1000", 100, 100),
    ("headless", "missing_entries", "1000", 0, 99),
    ("short", "missing_entries", "1000", 250, 299),
    ("bare", "missing_entries", "", 0, 299),
}


def test_exactly_the_broken_connections_between_segments_are_found() -> None:
    found = {
        member: [
            Span(
                segment=number * SIZE,
                first_index=first,
                last_index=last,
                first_term=first_term,
                last_term=last_term,
            )
            for number, first, last, first_term, last_term in segments
        ]
        for member, (_, _, segments) in SAYS.items()
    }
    held = {
        member: Held(first=begin, last=committed) for member, (begin, committed, _) in SAYS.items()
    }
    sizes = {member: {span.segment: SIZE for span in spans} for member, spans in found.items()}

    runs = list(continuity(found, held, sizes))

    assert {
        (run.member, run.check, str(run.segment) if run.segment >= 0 else "",
         run.first_index, run.last_index)
        for run in runs
    } == EXPECTED  # fmt: skip
    assert {run.severity for run in runs} == {"critical"}
    assert all(run.entries == run.last_index - run.first_index + 1 for run in runs)
