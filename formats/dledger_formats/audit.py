"""What an audit tells the operator: a verdict and the first findings, small enough for a pod's
status.

The audit's pod may not call the Kubernetes API. It leaves this summary as its container's
termination message, of which Kubernetes keeps 4096 bytes, and the operator reads it from the pod's
status.
"""

import dataclasses
import enum
from dataclasses import dataclass
from typing import Final, Self

from dledger_formats import json_objects

TERMINATION_MESSAGE_BYTES_MAX: Final = 4096
FIRST_FINDINGS_MAX: Final = 10
MESSAGE_LENGTH_MAX: Final = 256


class Verdict(enum.StrEnum):
    """The judgement in one word, from best to worst."""

    SOUND = "Sound"
    """Every member was read, and nothing is wrong."""
    INCOMPLETE = "Incomplete"
    """Something could not be read; what was read is sound."""
    DAMAGED = "Damaged"
    """A member holds bytes that it cannot have written so; a majority holds good ones."""
    DIVERGED = "Diverged"
    """Members hold different entries at or below the lowest committed index."""


class ExitCode(enum.IntEnum):
    """The exit code of `dledger-audit`, one for each verdict."""

    SOUND = 0
    USAGE = 2
    INCOMPLETE = 3
    DAMAGED = 4
    DIVERGED = 5
    FAILED = 70


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, and where."""

    check: str
    """The check's name, for example bad_body_crc."""
    severity: str
    """info, warning or critical"""
    member: str
    """The member's id; empty when no member can be blamed."""
    segment: str
    """The data file's name; empty when the finding is not about one."""
    first_index: int
    last_index: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSummary:
    """The result of one audit."""

    verdict: Verdict
    message: str
    members: list[str]
    entries: int
    """Entries read on the member that holds most."""
    record_bytes: int
    """Bytes of records read, over all members."""
    agreed_index: int
    """The lowest committed index of the members; they were compared up to here. -1 for none."""
    findings: int
    first_findings: list[Finding]

    def to_json(self, bytes_max: int = TERMINATION_MESSAGE_BYTES_MAX) -> bytes:
        """Encode, leaving out the last findings as needed to stay within `bytes_max`."""
        summary = dataclasses.replace(
            self,
            message=self.message[:MESSAGE_LENGTH_MAX],
            first_findings=self.first_findings[:FIRST_FINDINGS_MAX],
        )
        while len(raw := json_objects.encode(summary)) > bytes_max and summary.first_findings:
            summary = dataclasses.replace(summary, first_findings=summary.first_findings[:-1])
        return raw

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Decode; FormatError when a key is missing or has another type."""
        return json_objects.decode(cls, raw)
