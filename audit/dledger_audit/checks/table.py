"""The digests of all members as columns; `pyspark_dledger.digests` describes a row."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_dledger.layout import Bools, Flag, Longs


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestTable:
    """Rows of digests, sorted by member, segment and first index."""

    members: tuple[str, ...]
    """The names of the members, which the column `member` numbers."""
    member: Longs
    segment: Longs
    first_index: Longs
    last_index: Longs
    entries: Longs
    flags: Longs
    first_term: Longs
    last_term: Longs
    bytes: Longs
    at: Longs
    digest: Longs
    chain_digest: Longs
    covered: Longs
    reason: npt.NDArray[np.object_]

    def __len__(self) -> int:
        return len(self.member)

    @classmethod
    def of(cls, rows: pa.Table, members: tuple[str, ...]) -> Self:
        """Convert rows of DIGEST_SCHEMA, which are all of these members."""
        columns: dict[str, npt.NDArray[np.generic]] = {
            name: rows[name].to_numpy().astype(np.int64) for name in _NUMBERS
        }
        number = pc.index_in(rows["member"], value_set=pa.array(members, pa.string()))
        columns["member"] = number.to_numpy().astype(np.int64)
        columns["reason"] = np.array(rows["reason"].to_pylist(), np.object_)
        table = cls(members=members, **columns)  # type: ignore[arg-type]
        order = np.lexsort((table.first_index, table.segment, table.member))
        return table.pick(order)

    def pick(self, rows: Longs | Bools) -> Self:
        """Return some of the rows."""
        columns = {name: getattr(self, name)[rows] for name in (*_NUMBERS, "member", "reason")}
        return type(self)(members=self.members, **columns)

    def has(self, flags: Flag) -> Bools:
        """Return which rows have any of these flags."""
        found: Bools = (self.flags & int(flags)) != 0
        return found

    def segments(self) -> "Iterator[tuple[str, int, Self]]":
        """Yield the rows of each segment, with its member and its position."""
        if not len(self):
            return
        change = (np.diff(self.member) != 0) | (np.diff(self.segment) != 0)
        edges = [0, *(np.flatnonzero(change) + 1).tolist(), len(self)]
        for first, end in itertools.pairwise(edges):
            rows = np.arange(first, end)
            yield self.members[int(self.member[first])], int(self.segment[first]), self.pick(rows)


_NUMBERS = tuple(
    field.name for field in fields(DigestTable) if field.name not in ("members", "member", "reason")
)
