"""Checks of what callers pass: values that no server can take are refused before a request.

Wrong types raise TypeError, wrong values ValueError.
"""

import math
from typing import Final

GROUP_BYTES_MAX: Final = 255


def check_text(value: object, name: str, bytes_max: int = GROUP_BYTES_MAX) -> str:
    """Return a text that can be sent: 1 to `bytes_max` bytes of valid UTF-8."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{name} is {value!a}, which is not valid UTF-8") from None
    if not 0 < size <= bytes_max:
        raise ValueError(f"{name} has {size} bytes; it must have 1 to {bytes_max}")
    return value


def check_int(value: object, name: str, smallest: int, largest: int) -> int:
    """Return a whole number of a range, both ends included."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if not smallest <= value <= largest:
        raise ValueError(f"{name} is {value}; it must be {smallest} to {largest}")
    return value


def check_seconds(value: object, name: str) -> float:
    """Return a time above 0, in seconds."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of seconds, not {type(value).__name__}")
    if not 0 < value < math.inf:
        raise ValueError(f"{name} is {value}; it must be above 0 and finite")
    return value
