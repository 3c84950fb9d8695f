"""What can be wrong with a store, in words for machines, and how bad it is."""

import enum
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

FINDINGS_OF_A_KIND_MAX: Final = 100


class Severity(enum.IntEnum):
    """What a finding means for the entries."""

    NOTE = 0
    """Nothing is wrong; worth knowing."""
    REPAIRABLE = 1
    """A crash leaves this, and a node that starts mends it."""
    DAMAGE = 2
    """Something is gone or changed that had been stored; a node refuses to start, or to serve it.
    """


class Kind(enum.StrEnum):
    """What was found. The reasons of a damaged record are those of `disk.DamagedRecordError`."""

    STRANGE_FILE = "strange_file"
    """A name that is no segment's, or another length."""
    MISSING_SEGMENT = "missing_segment"
    DAMAGED_ENTRIES = "damaged_entries"
    UNREADABLE = "unreadable"
    """The disk gives an error where entries should be."""
    LOST_TAIL = "lost_tail"
    """Entries that the checkpoint calls durable are not there."""
    TORN_TAIL = "torn_tail"
    """Bytes in use behind the last sound entry, and behind the durable end."""
    WRONG_INDEX_UNITS = "wrong_index_units"
    BYTES_BEHIND_THE_INDEX = "bytes_behind_the_index"
    DAMAGED_CHECKPOINT = "damaged_checkpoint"
    DAMAGED_HARD_STATE = "damaged_hard_state"
    UNKNOWN_MEMBERSHIP = "unknown_membership"
    """An entry changes the membership in a way that this version cannot read."""
    DAMAGED_MEMBERSHIPS = "damaged_memberships"
    """The file that says who belonged to the group cannot be read, or is an old copy."""
    LEFT_BEHIND = "left_behind"
    """A spare segment or temporary file of a process that was killed."""
    NOT_COVERED = "not_covered"
    """Entries without checksums, as Java writes them: their bodies cannot be judged."""
    IN_USE = "in_use"
    """A process has the store open; its last entries may be on their way."""


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
    Kind.LEFT_BEHIND: Severity.REPAIRABLE,
    Kind.NOT_COVERED: Severity.NOTE,
    Kind.IN_USE: Severity.NOTE,
}

assert set(SEVERITY) == set(Kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is worth saying."""

    kind: Kind
    file: str
    """Relative to the store's folder."""
    detail: str
    byte: int | None = None
    """In the file."""
    first_index: int | None = None
    last_index: int | None = None

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return SEVERITY[self.kind]

    def to_json(self) -> dict[str, Any]:
        """The line that `-o json` writes."""
        plain = {
            "finding": self.kind.value,
            "severity": self.severity.name.lower(),
            "file": self.file,
            "byte": self.byte,
            "firstIndex": self.first_index,
            "lastIndex": self.last_index,
            "detail": self.detail,
        }
        return {key: value for key, value in plain.items() if value is not None}


@dataclass(slots=True)
class Findings:
    """All findings; of each kind the first `FINDINGS_OF_A_KIND_MAX` are kept, all are counted."""

    kept: list[Finding] = field(default_factory=list)
    counts: Counter[Kind] = field(default_factory=Counter)

    def add(self, finding: Finding) -> None:
        """Count one, and keep it while there is room."""
        self.counts[finding.kind] += 1
        if self.counts[finding.kind] <= FINDINGS_OF_A_KIND_MAX:
            self.kept.append(finding)

    @property
    def severity(self) -> Severity:
        """Of the worst."""
        return max((SEVERITY[kind] for kind in self.counts), default=Severity.NOTE)
