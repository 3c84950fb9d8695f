"""A problem, as it is reported to users."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem with an object, as the reason and message of a condition."""

    reason: str
    """The machine-readable reason, in CamelCase; one that several modules use is in `reasons`."""
    message: str
