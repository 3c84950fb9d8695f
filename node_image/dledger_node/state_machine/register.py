"""The register: a map from numbers to numbers, as in DLedger's example module.

    dump    magic "DLREGIST", version (4), number of keys (4), then key and value of each, in the
            order in which the keys were first set; all numbers of 4 bytes, little-endian

That order also follows from the log alone, and costs nothing: sorting a million keys would stop all
threads of the process for a second.

An entry whose body is not the size of a key and a value sets nothing, so a log with other entries
can get a register later.
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
    """The last value of every key. `get` may be called in any thread."""

    def __init__(self) -> None:
        self._values: dict[int, int] = {}

    def get(self, key: int) -> int | None:
        """Return the value of a key; None if it was never set."""
        return self._values.get(key)

    def is_quick(self, _: Sequence[CommittedEntry]) -> bool:
        """See `StateMachine`."""
        return True

    def apply(self, entries: Sequence[CommittedEntry]) -> None:
        """Set the keys of the entries."""
        self._values.update(SET.unpack(body) for _, body in entries if len(body) == SET.size)

    def copy(self) -> Self:
        """Return a copy of the values."""
        other = type(self)()
        other._values = self._values.copy()
        return other

    def dump(self) -> Iterator[bytes]:
        """Yield the values in the order in which the log set them, so members dump equal bytes."""
        yield _HEAD.pack(_MAGIC, _VERSION, len(self._values))
        items = iter(self._values.items())
        while piece := b"".join(SET.pack(*item) for item in islice(items, _PIECE_KEYS)):
            yield piece

    def load(self, file: BinaryIO) -> None:
        """Replace the values. Raises ValueError if the bytes are not a register."""
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            raise ValueError(f"a register cannot have {len(head)} bytes")
        magic, version, count = _HEAD.unpack(head)
        if magic != _MAGIC or version != _VERSION:
            raise ValueError(
                f"expected a register of version {_VERSION}, found {magic!r} of version {version}"
            )
        values = dict(_pairs(file))
        if len(values) != count:
            raise ValueError(f"the header announces {count} keys, but the data has {len(values)}")
        self._values = values


def _pairs(file: BinaryIO) -> Iterable[tuple[int, int]]:
    while piece := file.read(SET.size * _PIECE_KEYS):
        if len(piece) % SET.size:
            raise ValueError("the data ends inside a key or a value")
        yield from SET.iter_unpack(piece)
