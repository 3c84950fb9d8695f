"""The choice of a sample, as a function of its name."""

import hashlib
from collections.abc import Iterable
from typing import Final

ALL: Final = "all"
"""The name of the sample that leaves nothing out."""


def chosen(sample: str, among: str, names: Iterable[str], count: int) -> set[str]:
    """Return `count` of the names, or all of them if there are fewer.

    The same sample chooses the same names of the same set, and another sample may choose others.
    """
    if sample == ALL:
        return set(names)
    return set(sorted(set(names), key=lambda name: _rank(sample, among, name))[:count])


def _rank(sample: str, among: str, name: str) -> bytes:
    return hashlib.sha256(f"{sample}\n{among}\n{name}".encode()).digest()
