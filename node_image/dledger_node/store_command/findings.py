"""The kinds of findings about a store, and their severity."""

import enum
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

FINDINGS_OF_A_KIND_MAX: Final = 100


class Severity(enum.IntEnum):
    """The effect of a finding on the entries."""

    NOTE = 0
    """Information; nothing is wrong."""
    REPAIRABLE = 1
    """Left by a crash; a node repairs it when it starts."""
    DAMAGE = 2
    """Stored data is lost or changed; a node refuses to start, or to serve that data."""


class Kind(enum.StrEnum):
    """The kind of a finding. `disk.DamagedRecordError` defines the reasons of damaged records."""

    STRANGE_FILE = "strange_file"
    """A file whose name or length is not that of a segment."""
    MISSING_SEGMENT = "missing_segment"
    DAMAGED_ENTRIES = "damaged_entries"
    UNREADABLE = "unreadable"
    """The disk cannot read entries."""
    LOST_TAIL = "lost_tail"
    """Entries that are durable according to the checkpoint are missing."""
    TORN_TAIL = "torn_tail"
    """Bytes in use after the last sound entry and after the durable index."""
    WRONG_INDEX_UNITS = "wrong_index_units"
    BYTES_BEHIND_THE_INDEX = "bytes_behind_the_index"
    DAMAGED_CHECKPOINT = "damaged_checkpoint"
    DAMAGED_HARD_STATE = "damaged_hard_state"
    UNKNOWN_MEMBERSHIP = "unknown_membership"
    """A membership entry that this version cannot decode."""
    DAMAGED_MEMBERSHIPS = "damaged_memberships"
    """The file of committed memberships cannot be read, or is an old copy."""
    DAMAGED_SNAPSHOT = "damaged_snapshot"
    MISSING_STATE = "missing_state"
    """There are snapshots, but no sound one includes the entries that were removed from the log."""
    LEFT_BEHIND = "left_behind"
    """A spare segment, a segment before the log's beginning, or a temporary file or folder, left by
    a process that was killed.
    """
    NOT_COVERED = "not_covered"
    """Entries without checksums of their bodies, as Java writes them."""
    IN_USE = "in_use"
    """A process has the store open, so its last entries may be incomplete."""


SEVERITY: Final = {
    Kind.STRANGE_FILE: Severity.DAMAGE,
    Kind.MISSING_SEGMENT: Severity.DAMAGE,
    Kind.DAMAGED_ENTRIES: Severity.DAMAGE,
    Kind.UNREADABLE: Severity.DAMAGE,
    Kind.LOST_TAIL: Severity.DAMAGE,
    Kind.TORN_TAIL: Severity.REPAIRABLE,
    Kind.WRONG_INDEX_UNITS: Severity.REPAIRABLE,
    Kind.BYTES_BEHIND_THE_INDEX: Severity.REPAIRABLE,
    Kind.DAMAGED_CHECKPOINT: Severity.REPAIRABLE,
    Kind.DAMAGED_HARD_STATE: Severity.DAMAGE,
    Kind.UNKNOWN_MEMBERSHIP: Severity.DAMAGE,
    Kind.DAMAGED_MEMBERSHIPS: Severity.DAMAGE,
    Kind.DAMAGED_SNAPSHOT: Severity.REPAIRABLE,
    Kind.MISSING_STATE: Severity.DAMAGE,
    Kind.LEFT_BEHIND: Severity.REPAIRABLE,
    Kind.NOT_COVERED: Severity.NOTE,
    Kind.IN_USE: Severity.NOTE,
}

assert set(SEVERITY) == set(Kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding."""

    kind: Kind
    file: str
    """Path of the file, relative to the store's folder."""
    detail: str
    byte: int | None = None
    """Offset in the file."""
    first_index: int | None = None
    last_index: int | None = None

    def to_json(self, severity: Severity) -> dict[str, Any]:
        """Return the object that `-o json` writes."""
        plain = {
            "finding": self.kind.value,
            "severity": severity.name.lower(),
            "file": self.file,
            "byte": self.byte,
            "firstIndex": self.first_index,
            "lastIndex": self.last_index,
            "detail": self.detail,
        }
        return {key: value for key, value in plain.items() if value is not None}


@dataclass(slots=True)
class Findings:
    """All findings are counted; the first `FINDINGS_OF_A_KIND_MAX` of each kind are kept."""

    kept: list[Finding] = field(default_factory=list)
    counts: Counter[Kind] = field(default_factory=Counter)

    def add(self, finding: Finding) -> None:
        """Count a finding, and keep it unless there are too many of its kind."""
        self.counts[finding.kind] += 1
        if self.counts[finding.kind] <= FINDINGS_OF_A_KIND_MAX:
            self.kept.append(finding)

    @property
    def is_in_use(self) -> bool:
        """Whether a process has the store open."""
        return Kind.IN_USE in self.counts

    def severity_of(self, kind: Kind) -> Severity:
        """Return the severity of the findings of a kind.

        If a process has the store open, what a crash could have left may be unfinished work.
        """
        severity = SEVERITY[kind]
        if severity is Severity.REPAIRABLE and self.is_in_use:
            return Severity.NOTE
        return severity

    @property
    def severity(self) -> Severity:
        """The severity of the worst finding."""
        return max(map(self.severity_of, self.counts), default=Severity.NOTE)
