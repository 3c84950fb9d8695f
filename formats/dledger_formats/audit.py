"""The summary of an audit for the operator: a verdict and the first findings.

The audit's pod has no access to the Kubernetes API. It writes this summary as its container's
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
FAILURE_LENGTH_MAX: Final = 600


class Verdict(enum.StrEnum):
    """The result in one word, from best to worst."""

    SOUND = "Sound"
    """Every member was read, and nothing is wrong."""
    INCOMPLETE = "Incomplete"
    """Some data could not be read; the data that was read is sound."""
    DAMAGED = "Damaged"
    """A member has bytes that it cannot have written, or lacks entries."""
    DIVERGED = "Diverged"
    """Members hold different committed entries, or different states."""


class ExitCode(enum.IntEnum):
    """The exit code of `dledger-audit`, one for each verdict of an audit."""

    SOUND = 0
    USAGE = 2
    INCOMPLETE = 3
    DAMAGED = 4
    DIVERGED = 5
    REFUSED = 6
    """An archive was not made or not verified, and is unchanged."""
    FAILED = 70


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem, and its place."""

    check: str
    """The name of the check, for example bad_body_crc."""
    severity: str
    """The severity: info, warning or critical."""
    member: str
    """The member's id; empty if the problem cannot be traced to a member."""
    segment: str
    """The name of the data file; empty if the finding is not about one."""
    first_index: int
    last_index: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFailure:
    """Why an audit ended without a result, if another try of its Job would end the same way."""

    failed: str
    """The reason, in one word."""
    message: str

    def to_json(self) -> bytes:
        """Encode."""
        message = self.message[:FAILURE_LENGTH_MAX]
        return json_objects.encode(dataclasses.replace(self, message=message))

    @classmethod
    def from_json(cls, raw: bytes) -> Self:
        """Decode. Raises FormatError if a key is missing or has another type."""
        return json_objects.decode(cls, raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSummary:
    """The result of one audit."""

    verdict: Verdict
    message: str
    members: list[str]
    entries: int
    """Number of entries read from the member with the most entries."""
    record_bytes: int
    """Total bytes of records read from all members."""
    agreed_index: int
    """The lowest committed index of the voters that count; -1 for none. Later entries were compared
    among the members that committed them.
    """
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
        """Decode. Raises FormatError if a key is missing or has another type."""
        return json_objects.decode(cls, raw)
