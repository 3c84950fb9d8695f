"""Whole numbers in settings and on command lines: digits, and nothing else that Python reads."""

import re
from typing import Final

_DIGITS: Final = re.compile("-?[0-9]+")


def plain_int(text: str) -> int:
    """Return a number of digits, with a minus or without. Raises ValueError.

    Python takes more for a number, such as "1_0", " 7" or digits of other scripts.
    """
    if not _DIGITS.fullmatch(text):
        raise ValueError(text)
    return int(text)
