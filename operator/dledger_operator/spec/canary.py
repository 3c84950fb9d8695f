"""How often the operator tests a group with a canary: `spec.canary`."""

from dataclasses import dataclass
from typing import Final

from dledger_operator.spec.quantities import duration_ms
from dledger_operator.spec.spec_reader import InvalidSpecError, SpecReader

DEFAULT_INTERVAL: Final = "10s"
INTERVAL_MS_MIN: Final = 1_000
INTERVAL_MS_MAX: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CanarySpec:
    """The part `canary` of a spec."""

    interval_s: float
    """From the start of one test to the start of the next."""


def read_canary(spec: SpecReader) -> CanarySpec | None:
    """Parse `canary`; None if the spec has none. Raises InvalidSpecError."""
    if spec.values.get("canary") is None:
        return None
    section = spec.section("canary")
    interval_ms = section.converted("interval", duration_ms, DEFAULT_INTERVAL)
    if not INTERVAL_MS_MIN <= interval_ms <= INTERVAL_MS_MAX:
        raise InvalidSpecError(f"{section.path}.interval is {interval_ms} ms; it must be 1s to 1h")
    return CanarySpec(interval_s=interval_ms / 1000)
