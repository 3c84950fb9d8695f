"""Checks of arguments: values that no server accepts are rejected before any request.

Wrong types raise TypeError, wrong values ValueError.
"""

import enum
from collections.abc import Callable
from typing import Any, Final, TypeVar

Choice = TypeVar("Choice", bound=enum.Enum)
Function = TypeVar("Function", bound=Callable[..., Any])

GROUP_BYTES_MAX: Final = 255
TOKEN_BYTES_MAX: Final = 256
SECONDS_MAX: Final = 1_000_000_000
"""About 30 years; clocks and numbers on the wire can represent it."""
TEXT_SHOWN_MAX: Final = 80
"""Length to which a wrong text is cut in a message."""
SHOWN_BITS_MAX: Final = 128
"""A number of more bits is not shown: Python refuses to convert a vast one to text."""


def check_text(value: object, name: str, bytes_max: int = GROUP_BYTES_MAX) -> str:
    """Return a text that can be sent: 1 to `bytes_max` bytes of valid UTF-8."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{name} is {value!a}, which is not valid UTF-8") from None
    if "\0" in value:
        raise ValueError(f"{name} is {value[:TEXT_SHOWN_MAX]!a}, which has a NUL")
    if not 0 < size <= bytes_max:
        raise ValueError(f"{name} has {size} bytes; it must have 1 to {bytes_max}")
    return value


def check_int(value: object, name: str, smallest: int, largest: int) -> int:
    """Return a whole number in a range, both ends included."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if not smallest <= value <= largest:
        is_vast = value.bit_length() > SHOWN_BITS_MAX
        shown = f"a number of {value.bit_length()} bits" if is_vast else value
        raise ValueError(f"{name} is {shown}; it must be {smallest} to {largest}")
    return value


def check_flag(value: object, name: str) -> bool:
    """Return True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be a bool, not {type(value).__name__}")
    return value


def check_function(value: Function, name: str) -> Function:
    """Return a function or another callable object."""
    if not callable(value):
        raise TypeError(f"{name} must be a function, not {type(value).__name__}")
    return value


def check_secret(value: object, name: str) -> str:
    """Return a text that may be empty; no error message contains it."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if not value.isascii() or len(value) > TOKEN_BYTES_MAX:
        raise ValueError(f"{name} must be ASCII, and have at most {TOKEN_BYTES_MAX} characters")
    return value


def check_choice(value: object, name: str, kind: type[Choice]) -> Choice:
    """Return the member of an enumeration that has this value."""
    known = [one.value for one in kind]
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if value not in known:
        raise ValueError(f"{name} is {value!a}; it must be {' or '.join(known)}")
    return kind(value)


def check_seconds(value: object, name: str) -> float:
    """Return a time above 0, in seconds."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number of seconds, not {type(value).__name__}")
    if not 0 < value <= SECONDS_MAX:
        raise ValueError(f"{name} must be above 0 and at most {SECONDS_MAX} seconds")
    return value
