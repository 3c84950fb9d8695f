"""The steps that are the same for all one-off objects that are carried out in steps."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

TIMED_OUT: Final = "TimedOut"


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Record that the work begins; its timeout counts from then on."""

    message: str
    """What is done first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The work has ended."""

    succeeded: bool
    reason: str
    message: str
    result: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the status."""
