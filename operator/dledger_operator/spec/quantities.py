"""Parsers for durations (`250ms`) and Kubernetes quantities (`10Gi`)."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

_TEXT_LENGTH_MAX: Final = 20
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_MS_OF_UNIT: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?)(k|[MGTPE]|[KMGTPE]i)?")
_FACTOR: Final[dict[str | None, int]] = {
    None: 1,
    **{prefix: 1000**power for power, prefix in enumerate("kMGTPE", start=1)},
    **{f"{prefix}i": 1024**power for power, prefix in enumerate("KMGTPE", start=1)},
}


def duration_ms(text: str) -> int:
    """Parse a duration such as `250ms`, `1s` or `1h30m` into milliseconds.

    Raises ValueError for any other text and for fractions of a millisecond.
    """
    parts = list(_DURATION_PART.finditer(text[:_TEXT_LENGTH_MAX]))
    if not parts or "".join(part[0] for part in parts) != text:
        raise ValueError(f"{text!r} is not a duration such as 250ms, 1s or 24h")
    total = sum(Decimal(part[1]) * _MS_OF_UNIT[part[2]] for part in parts)
    if total != int(total):
        raise ValueError(f"{text!r} is not a whole number of milliseconds")
    return int(total)


def quantity_bytes(value: str | int) -> int:
    """Parse a Kubernetes quantity such as `10Gi` into bytes.

    Raises ValueError for any other text and for fractions of a byte.
    """
    text = str(value)
    match = _QUANTITY.fullmatch(text) if len(text) <= _TEXT_LENGTH_MAX else None
    if match is None:
        raise ValueError(f"{text!r} is not a quantity such as 512Mi or 10Gi")
    exact = Decimal(match[1]) * _FACTOR[match[2]]
    if exact != int(exact):
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(exact)


def memory_limit_bytes(resources: Mapping[str, Any]) -> int:
    """Return the memory limit of a container's resources; 0 if it has none, or one in a form that
    Kubernetes knows and this package does not, such as 5e8.
    """
    try:
        return quantity_bytes((resources.get("limits") or {})["memory"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return 0
