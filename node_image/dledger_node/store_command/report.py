"""The report of `verify`: everything that a folder holds, and the verdict."""

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dledger_node.raft.membership import MembershipEntry
from dledger_node.raft.ready import HardState
from dledger_node.store.small_files.checkpoint import Checkpoint
from dledger_node.store_command.findings import Findings, Severity
from dledger_node.store_command.log_folder import LogFolder


class Verdict(enum.StrEnum):
    """What a node would do with the store."""

    SOUND = "sound"
    """Open it as it is."""
    REPAIRABLE = "repairable"
    """Open it and repair what a crash left."""
    DAMAGED = "damaged"
    """Refuse to open it, or to serve some of its entries."""


@dataclass(slots=True)
class Report:
    """The content of a folder, and the findings about it."""

    folder: Path
    data: LogFolder
    index: LogFolder
    findings: Findings = field(default_factory=Findings)
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    """(first index, last index, term) of each run of consecutive sound entries."""
    uncovered: int = 0
    """Number of entries without a body CRC."""
    membership: MembershipEntry | None = None
    """The last membership entry; None for the configured first voters."""
    tail_bytes: int = 0
    """Bytes in use after the last sound entry."""
    snapshots: list[int] = field(default_factory=list)
    """Last included index of each sound snapshot."""
    checkpoint: Checkpoint | None = None
    hard_state: HardState | None = None

    @property
    def verdict(self) -> Verdict:
        """The verdict, by the worst finding."""
        match self.findings.severity:
            case Severity.NOTE:
                return Verdict.SOUND
            case Severity.REPAIRABLE:
                return Verdict.REPAIRABLE
            case _:
                return Verdict.DAMAGED

    @property
    def entries(self) -> int:
        """Number of sound entries."""
        return sum(last - first + 1 for first, last, _ in self.runs)

    @property
    def begin_index(self) -> int:
        """Index of the first sound entry; -1 if there is none."""
        return self.runs[0][0] if self.runs else -1

    @property
    def end_index(self) -> int:
        """Index of the last sound entry; -1 if there is none."""
        return self.runs[-1][1] if self.runs else -1

    @property
    def end_term(self) -> int:
        """Term of the last sound entry; -1 if there is none."""
        return self.runs[-1][2] if self.runs else -1

    def to_json(self) -> dict[str, Any]:
        """Return the last object that `-o json` writes."""
        return {
            "folder": str(self.folder),
            "verdict": self.verdict.value,
            "findings": {kind.value: n for kind, n in sorted(self.findings.counts.items())},
            "entries": self.entries,
            "beginIndex": self.begin_index,
            "endIndex": self.end_index,
            "runs": [
                {"firstIndex": first, "lastIndex": last, "term": term}
                for first, last, term in self.runs
            ],
            "term": self.hard_state.term if self.hard_state else None,
            "voteFor": self.hard_state.vote_for if self.hard_state else None,
            "durableIndex": self.checkpoint.end_index if self.checkpoint else None,
            "committedIndex": self.checkpoint.committed_index if self.checkpoint else None,
            "dataSegments": len(self.data.segments),
            "segmentBytes": self.data.segment_size,
            "indexSegments": len(self.index.segments),
            "indexSegmentBytes": self.index.segment_size,
            "membershipIndex": self.membership.index if self.membership else None,
            "voters": self.membership.membership.voters if self.membership else None,
            "learners": self.membership.membership.learners if self.membership else None,
            "snapshots": self.snapshots,
            "uncoveredEntries": self.uncovered,
            "tailBytes": self.tail_bytes,
        }
