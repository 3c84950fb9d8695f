"""How long the phases of a switchover took, as far as one process has seen."""

from collections.abc import Callable

from dledger_operator.api_objects import Manifest


class PhaseTimes:
    """How long the phases of a switchover took, as far as this process has seen."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at_s: dict[str, float] = {}

    def note(self, moment: str) -> None:
        """Note the first time of `begun`, `asked`, `led` or `ended`."""
        self._at_s.setdefault(moment, self._clock())

    def between(self, start: str, end: str) -> float | None:
        """Return the seconds between two moments; None if one of them was not seen."""
        if start not in self._at_s or end not in self._at_s:
            return None
        return max(0.0, self._at_s[end] - self._at_s[start])

    def to_json(self) -> Manifest:
        """Return the fields of the status, without phases that were not seen."""
        phases = {
            "checkSeconds": self.between("begun", "asked"),
            "transferSeconds": self.between("asked", "led"),
            "serviceSeconds": self.between("led", "ended"),
        }
        return {key: round(value, 3) for key, value in phases.items() if value is not None}
