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

MEMORY_BYTES_MAX: Final = 1 << 62
"""More than any machine has; a member refuses a larger number."""
_ANY_LENGTH_MAX: Final = 64
_ANY_QUANTITY: Final = re.compile(
    r"[+]?(?P<number>\d+[.]?\d*|[.]\d+)(?:[eE](?P<exponent>[+-]?\d{1,2})|(?P<suffix>[num]|k|[MGTPE]i?|Ki))?"
)
"""Every form of a positive quantity that Kubernetes accepts."""
_ANY_FACTOR: Final[dict[str | None, Decimal]] = {
    **{suffix: Decimal(factor) for suffix, factor in _FACTOR.items()},
    **{prefix: Decimal(1000) ** -power for power, prefix in enumerate("mun", start=1)},
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
    """Return the memory limit of a container's resources, rounded down; 0 if it has none.

    The API server has accepted the limit, so it may have any form of a quantity, such as 5e8 or
    the thousandths of a byte that some autoscalers write: 536870912000m.
    """
    limits = resources.get("limits")
    text = str(limits.get("memory", "")) if isinstance(limits, Mapping) else ""
    match = _ANY_QUANTITY.fullmatch(text[:_ANY_LENGTH_MAX])
    if match is None:
        return 0
    number = Decimal(match["number"])
    if match["exponent"]:
        exact = number.scaleb(int(match["exponent"]))
    else:
        exact = number * _ANY_FACTOR[match["suffix"] or None]
    return min(int(exact), MEMORY_BYTES_MAX)
