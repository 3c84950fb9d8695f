"""The counts of a run of faults, serializable as one line of JSON."""

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

VIOLATIONS_KEPT = 200


@dataclass(slots=True)
class Tally:
    """Counts of one run; `violations` stays empty if the store keeps its promises."""

    faults: int = 0
    acknowledged: int = 0
    """Entries that were promised, over all faults."""
    lost_unacknowledged: int = 0
    """Entries that were written, not promised, and lost; they show that the faults have effect."""
    cut_tails: int = 0
    """Number of recoveries that cut a tail."""
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)
    violations_total: int = 0
    details: dict[str, int] = field(default_factory=dict)
    """Counts of one kind of run."""

    def blame(self, violations: Iterable[str]) -> None:
        """Count broken promises; keep the first ones."""
        for violation in violations:
            self.violations_total += 1
            if len(self.violations) < VIOLATIONS_KEPT:
                self.violations.append(violation)

    def count(self, name: str, by: int = 1) -> None:
        """Add to a count of `details`."""
        self.details[name] = self.details.get(name, 0) + by

    def to_json(self) -> str:
        """Encode the tally as one line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Decode a line of `to_json`."""
        return cls(**json.loads(line))
