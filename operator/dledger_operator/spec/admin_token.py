"""Whether a group demands its administration token, and when the token is replaced."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from dledger_operator.spec.spec_reader import InvalidSpecError, SpecReader

DAYS_MAX: Final = 3650


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminTokenSpec:
    """The part `adminToken` of a spec."""

    required: bool = True
    """Whether membership changes and leadership transfers need the token."""
    rotate_after: timedelta = timedelta(days=30)
    """How long a token is sent before another one replaces it."""
    rotated_at: str = ""
    """A new value replaces the token at once; empty for none."""


def read_admin_token(spec: SpecReader) -> AdminTokenSpec:
    """Parse `adminToken`. Raises InvalidSpecError."""
    section = spec.section("adminToken")
    days = section.number("rotateAfterDays", 30)
    if not 1 <= days <= DAYS_MAX:
        raise InvalidSpecError(
            f"{section.path}.rotateAfterDays is {days}; it must be 1 to {DAYS_MAX}"
        )
    return AdminTokenSpec(
        required=section.flag("required", default=True),
        rotate_after=timedelta(days=days),
        rotated_at=section.text("rotatedAt"),
    )
