"""Findings of a proof: counted by check, and the first ones of each kept."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

SHOWN_MAX: Final = 20
"""Findings of one check that are kept; all are counted."""

# The names of the checks, in the order of a report, and what they mean.
CHECKS: Final = {
    "damaged": "a record of the archive is damaged, or cannot be read",
    "digest_differs": "a file is not the one that archive.json describes",
    "wrong_end": "the last entry, or its term, is not the one that archive.json names",
    "wrong_place": "a position, a blank or an index unit is not where the layout puts it",
    "missing": "an entry of the source is not in the archive at all",
    "invented": "the archive has an entry that the source does not have",
    "altered": "an entry has another body, kind or channel than in the source",
    "term_changed": "an entry has another term than in the source",
    "lost_last_value": "the last value of a key is gone",
    "older_value_back": "an older value of a key is there, although a newer one exists",
    "tombstone_too_early": "a tombstone is gone before its time",
    "tombstone_too_late": "a tombstone is there although its time has passed",
    "lost_without_key": "an entry without a key is gone",
    "lost_membership": "a membership, or another no-op, is gone or altered",
    "bad_noop": "what was dropped is not an empty no-op with channel 0",
    "clean_point": "the clean point is not in the archive, or in the last segment of each member",
    "changed_behind": "an entry after the clean point is not as in the source",
    "not_in_source": "the sources do not have these entries any more, so they were not compared",
}
INCOMPLETE: Final = frozenset({"not_in_source"})
"""Checks that report what was not verified; every other check reports damage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofFinding:
    """One fault, and its place."""

    check: str
    index: int
    """Index of the entry; -1 if the finding is not about one."""
    detail: str


@dataclass(slots=True)
class Found:
    """All findings so far."""

    first: list[ProofFinding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, check: str, index: int, detail: str) -> None:
        """Add a finding."""
        assert check in CHECKS
        self.counts[check] += 1
        if self.counts[check] <= SHOWN_MAX:
            self.first.append(ProofFinding(check=check, index=index, detail=detail))

    @property
    def is_damaged(self) -> bool:
        """Whether anything is wrong."""
        return bool(self.counts.keys() - INCOMPLETE)
