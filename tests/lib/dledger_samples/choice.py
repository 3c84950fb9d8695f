"""The choice of a sample, as a function of its name."""

import hashlib
from collections.abc import Iterable
from typing import Final

ALL: Final = "all"
"""The name of the sample that leaves nothing out."""
_RANK_BITS: Final = 256


def chosen(sample: str, among: str, names: Iterable[str], count: int) -> set[str]:
    """Return `count` of the names, or all of them if there are fewer.

    The same sample chooses the same names of the same set, and another sample may choose others.
    """
    if sample == ALL:
        return set(names)
    return set(sorted(set(names), key=lambda name: _rank(sample, among, name))[:count])


def within(sample: str, among: str, names: set[str], share: float) -> set[str]:
    """Return about this share of the names, and at least one. Each is chosen independently of the
    others.
    """
    if sample == ALL or not names:
        return names
    first = min(names, key=lambda name: _rank(sample, among, name))
    limit = share * 2**_RANK_BITS
    ranks = {name: int.from_bytes(_rank(sample, among, name)) for name in names}
    return {name for name, rank in ranks.items() if rank < limit or name == first}


def _rank(sample: str, among: str, name: str) -> bytes:
    return hashlib.sha256(f"{sample}\n{among}\n{name}".encode()).digest()
