"""Checks of the indexes of entries, before a request is sent."""

from typing import Final

from dledger_client.cluster.arguments import check_int

INDEX_MAX: Final = (1 << 63) - 1
"""An index has 64 bits with a sign on the wire and in the files."""


def check_index(value: object, name: str) -> None:
    """Raise TypeError unless a value is an int, ValueError unless it is 0 to INDEX_MAX."""
    check_int(value, name, 0, INDEX_MAX)


def check_range(first: int, last: int | None) -> None:
    """Raise TypeError or ValueError unless these are the indexes of a range.

    It may be empty, as for `range`: `last` is then `first` - 1.
    """
    check_index(first, "first")
    if last is not None:
        check_index(last, "last")
        if last < first - 1:
            raise ValueError(
                f"last, {last}, is before first, {first}; the last of an empty range is {first - 1}"
            )
