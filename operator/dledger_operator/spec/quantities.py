"""The durations of a spec (`250ms`), the memory limit of a container, and the sizes of volumes."""

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from dledger_formats.quantities import BYTES_MAX, quantity

_TEXT_LENGTH_MAX: Final = 20
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_MS_OF_UNIT: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}

MEMORY_BYTES_MAX: Final = 1 << 62
"""More than any machine has; a member refuses a larger number."""


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


def memory_limit_bytes(resources: Mapping[str, Any]) -> int:
    """Return the memory limit of a container's resources, rounded down; 0 if it has none.

    The API server has accepted the limit, so it may have any form of a quantity, such as 5e8 or
    the thousandths of a byte that some autoscalers write: 536870912000m.
    """
    limits = resources.get("limits")
    text = str(limits.get("memory", "")) if isinstance(limits, Mapping) else ""
    try:
        return min(int(quantity(text)), MEMORY_BYTES_MAX)
    except ValueError:
        return 0


def volume_bytes(size: str | int) -> int:
    """Return the size of a volume in bytes, as Kubernetes reads a quantity: rounded up, and no more
    than BYTES_MAX.

    Raises ValueError for a text that is not a quantity. A size that the schema admits is never
    refused: storage.size cannot be reduced, so a refusal would be permanent.
    """
    return min(math.ceil(quantity(size)), BYTES_MAX)
