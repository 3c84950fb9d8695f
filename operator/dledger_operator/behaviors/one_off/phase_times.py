"""How long the phases of a one-off object took, as far as one process has seen."""

from collections.abc import Callable, Mapping

from dledger_operator.api_objects import Manifest


class PhaseTimes:
    """How long the phases took, as far as this process has seen."""

    def __init__(self, clock: Callable[[], float], phases: Mapping[str, tuple[str, str]]) -> None:
        """Create without times; `phases` has the two moments of each field of the status."""
        self._clock = clock
        self._phases = phases
        self._at_s: dict[str, float] = {}

    def note(self, moment: str) -> None:
        """Record the time of a moment, unless it was recorded before."""
        self._at_s.setdefault(moment, self._clock())

    def between(self, start: str, end: str) -> float | None:
        """Return the seconds between two moments; None if one of them was not seen."""
        if start not in self._at_s or end not in self._at_s:
            return None
        return max(0.0, self._at_s[end] - self._at_s[start])

    def to_json(self) -> Manifest:
        """Return the fields of the status, without phases that were not seen."""
        times = {field: self.between(*moments) for field, moments in self._phases.items()}
        return {field: round(value, 3) for field, value in times.items() if value is not None}
