"""What a run of faults counted, as one line that another process can read."""

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

VIOLATIONS_KEPT = 200


@dataclass(slots=True)
class Tally:
    """Counts of one run; `violations` must stay empty where the store keeps its word."""

    faults: int = 0
    acknowledged: int = 0
    """Entries that were promised, over all faults."""
    lost_unacknowledged: int = 0
    """Entries that were written, never promised, and are gone: these faults bite."""
    cut_tails: int = 0
    """How often recovery found something to cut."""
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)
    violations_total: int = 0
    details: dict[str, int] = field(default_factory=dict)
    """Counts that only one kind of run has."""

    def blame(self, violations: Iterable[str]) -> None:
        """Count broken promises; the first are kept."""
        for violation in violations:
            self.violations_total += 1
            if len(self.violations) < VIOLATIONS_KEPT:
                self.violations.append(violation)

    def count(self, name: str, by: int = 1) -> None:
        """Add to one of the details."""
        self.details[name] = self.details.get(name, 0) + by

    def to_json(self) -> str:
        """One line."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Self:
        """What `to_json` wrote."""
        return cls(**json.loads(line))
