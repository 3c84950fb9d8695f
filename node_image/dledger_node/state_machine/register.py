"""The register: a map from numbers to numbers, as in DLedger's example module.

    dump    magic "DLREGIST", version (4), number of keys (4), then key and value of each, in the
            order in which the keys were first set; all numbers of 4 bytes, little-endian

That order too follows from the log alone, and costs nothing: to sort a million keys would stop all
threads of the process for a second.

An entry whose body has another size than a key and a value sets nothing: a log of other things can
get a register later on.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import BinaryIO, Final, Self

from dledger_formats.protocol.register import SET
from dledger_node.state_machine.machine import CommittedEntry

_MAGIC: Final = b"DLREGIST"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<8sII")
_PIECE_KEYS: Final = 8192


class Register:
    """Every value that was set last; `get` may be called in any thread."""

    def __init__(self) -> None:
        self._values: dict[int, int] = {}

    def get(self, key: int) -> int | None:
        """The value of a key; None when it was never set."""
        return self._values.get(key)

    def apply(self, entries: Sequence[CommittedEntry]) -> None:
        """Set what the entries say."""
        self._values.update(SET.unpack(body) for _, body in entries if len(body) == SET.size)

    def copy(self) -> Self:
        """The present values."""
        other = type(self)()
        other._values = self._values.copy()
        return other

    def dump(self) -> Iterator[bytes]:
        """The values as the log set them, so that members have equal bytes."""
        yield _HEAD.pack(_MAGIC, _VERSION, len(self._values))
        items = iter(self._values.items())
        while piece := b"".join(SET.pack(*item) for item in islice(items, _PIECE_KEYS)):
            yield piece

    def load(self, file: BinaryIO) -> None:
        """Take values; ValueError when these bytes are none."""
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            raise ValueError(f"a register of {len(head)} bytes")
        magic, version, count = _HEAD.unpack(head)
        if magic != _MAGIC or version != _VERSION:
            raise ValueError(f"version {version} of {magic!r}, where a register was expected")
        values = dict(_pairs(file))
        if len(values) != count:
            raise ValueError(f"{len(values)} keys, where {count} were announced")
        self._values = values


def _pairs(file: BinaryIO) -> Iterable[tuple[int, int]]:
    while piece := file.read(SET.size * _PIECE_KEYS):
        if len(piece) % SET.size:
            raise ValueError("it ends within a key or a value")
        yield from SET.iter_unpack(piece)
