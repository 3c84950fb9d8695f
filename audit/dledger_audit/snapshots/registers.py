"""The register by columns: what entries change, and the bytes of its snapshot.

The module follows `docs/state-machine.md` and not the members' code, so that it reveals their
faults:

    entry      key, value: two signed numbers of 4 bytes, little-endian; other bodies set nothing
    snapshot   magic "DLREGIST", version (4), number of keys (4), then key and value of each, in the
               order in which the keys were first set
"""

from dataclasses import dataclass
from typing import Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dledger_formats.log import disk
from pyspark_dledger.intact import Slice
from pyspark_dledger.layout import Longs

HEAD: Final = np.dtype([("magic", "S8"), ("version", "<u4"), ("count", "<u4")])
PAIR: Final = np.dtype([("key", "<i4"), ("value", "<i4")])
MAGIC: Final = b"DLREGIST"
VERSION: Final = 1
HEAD_BYTES: Final = HEAD.itemsize

DELTA_SCHEMA: Final = pa.schema(
    [
        ("step", pa.int32()),
        ("key", pa.int32()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("value", pa.int32()),
    ]
)
"""What the entries of a step do to a key: the first one that sets it, the last one, and its value.

A step of which an entry could not be read has a row whose `first` is UNREADABLE.
"""
UNREADABLE: Final = -1

Ints: TypeAlias = npt.NDArray[np.int32]


def is_register(head: bytes) -> bool:
    """Return whether the data of a snapshot that begins with these bytes is a register."""
    if len(head) < HEAD_BYTES:
        return False
    found = np.frombuffer(head[:HEAD_BYTES], HEAD)[0]
    return bool(found["magic"] == MAGIC and found["version"] == VERSION)


def delta_of(step: int, entries: Slice) -> pa.RecordBatch:
    """Return what consecutive entries set, one row of DELTA_SCHEMA for each key."""
    part = slice(entries.start, entries.end)
    run = entries.entries
    sets = (run.headers["magic"][part] == disk.NORMAL) & (run.bodies.sizes[part] == PAIR.itemsize)
    at = run.bodies.offsets[part][sets]
    raw = run.view[at[:, np.newaxis] + np.arange(PAIR.itemsize)]
    pairs = np.ascontiguousarray(raw).view(PAIR).reshape(-1)
    index: Longs = run.index[part][sets]
    keys, first = np.unique(pairs["key"], return_index=True)
    _, from_end = np.unique(pairs["key"][::-1], return_index=True)
    last = len(pairs) - 1 - from_end
    columns = [
        np.full(len(keys), step, np.int32),
        keys.astype(np.int32),
        index[first],
        index[last],
        pairs["value"][last].astype(np.int32),
    ]
    return pa.RecordBatch.from_arrays([pa.array(each) for each in columns], schema=DELTA_SCHEMA)


def unreadable(step: int) -> pa.RecordBatch:
    """Return the row that says that an entry of a step could not be read."""
    row = {"step": step, "key": 0, "first": UNREADABLE, "last": UNREADABLE, "value": 0}
    return pa.RecordBatch.from_pylist([row], schema=DELTA_SCHEMA)


@dataclass(frozen=True, slots=True)
class Register:
    """A register: keys in the order in which they were first set, and their values."""

    keys: Ints
    values: Ints

    @classmethod
    def empty(cls) -> Self:
        """Return the register of an empty log."""
        return cls(np.empty(0, np.int32), np.empty(0, np.int32))

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Read the data of a snapshot. Raises ValueError if it is no register."""
        if not is_register(data):
            raise ValueError(f"it does not begin as a register does: {data[:HEAD_BYTES]!r}")
        count = int(np.frombuffer(data[:HEAD_BYTES], HEAD)[0]["count"])
        if len(data) != HEAD_BYTES + count * PAIR.itemsize:
            raise ValueError(f"{len(data)} bytes are not those of {count} keys")
        pairs = np.frombuffer(data, PAIR, offset=HEAD_BYTES)
        if len(np.unique(pairs["key"])) != count:
            raise ValueError("a key occurs twice")
        return cls(pairs["key"].copy(), pairs["value"].copy())

    def after(self, keys: Ints, first: Longs, values: Ints) -> "Register":
        """Return the register after keys were first set at `first`, and last to `values`.

        Each key occurs once.
        """
        by_key = np.argsort(self.keys, kind="stable")
        place = np.searchsorted(self.keys, keys, sorter=by_key)
        place = by_key[np.minimum(place, len(by_key) - 1)] if len(by_key) else place
        is_known = self.keys[place] == keys if len(by_key) else np.zeros(len(keys), np.bool_)
        changed = self.values.copy()
        changed[place[is_known]] = values[is_known]
        order = np.argsort(first[~is_known], kind="stable")
        return Register(
            np.concatenate((self.keys, keys[~is_known][order])),
            np.concatenate((changed, values[~is_known][order])),
        )

    def dump(self) -> bytes:
        """Return the data of the snapshot that a member saves."""
        head = np.array([(MAGIC, VERSION, len(self.keys))], HEAD)
        pairs = np.empty(len(self.keys), PAIR)
        pairs["key"], pairs["value"] = self.keys, self.values
        return head.tobytes() + pairs.tobytes()
