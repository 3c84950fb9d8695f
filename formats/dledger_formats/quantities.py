"""Quantities as Kubernetes writes them, such as 2, 500m, 10Gi or 5e8."""

import re
from fractions import Fraction
from typing import Final

BYTES_MAX: Final = (1 << 63) - 1
"""The largest amount that Kubernetes represents."""
_LENGTH_MAX: Final = 64
_QUANTITY: Final = re.compile(
    r"[+]?(?P<number>[0-9]+[.]?[0-9]*|[.][0-9]+)"
    r"(?:[eE](?P<exponent>[+-]?[0-9]{1,2})|(?P<suffix>[num]|k|[MGTPE]i?|Ki))?"
)
"""Every form of a quantity that is not negative."""
_FACTOR: Final[dict[str | None, Fraction]] = {
    None: Fraction(1),
    **{prefix: Fraction(1000) ** -power for power, prefix in enumerate("mun", start=1)},
    **{prefix: Fraction(1000) ** power for power, prefix in enumerate("kMGTPE", start=1)},
    **{f"{prefix}i": Fraction(1024) ** power for power, prefix in enumerate("KMGTPE", start=1)},
}


def quantity(value: str | int) -> Fraction:
    """Return the exact number that a quantity means. Raises ValueError for any other text, and for
    a negative quantity.
    """
    text = str(value)
    match = _QUANTITY.fullmatch(text) if len(text) <= _LENGTH_MAX else None
    if match is None:
        raise ValueError(f"{text[:_LENGTH_MAX]!r} is not a quantity such as 2, 500m or 10Gi")
    number = Fraction(match["number"])
    if match["exponent"]:
        return number * Fraction(10) ** int(match["exponent"])
    return number * _FACTOR[match["suffix"]]


def quantity_bytes(value: str | int) -> int:
    """Return the bytes that a quantity such as 10Gi means.

    Raises ValueError for any other text, for fractions of a byte, and for more than BYTES_MAX.
    """
    exact = quantity(value)
    if exact.denominator != 1:
        raise ValueError(f"{str(value)!r} is not a whole number of bytes")
    if exact > BYTES_MAX:
        raise ValueError(f"{str(value)!r} is a quantity of more than {BYTES_MAX} bytes")
    return int(exact)
