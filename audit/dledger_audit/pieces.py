"""The comparison of one disputed piece, from packs to outcomes, as a worker of Spark runs it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from dledger_audit.checks.agreement import Outcome, Pack, agreement
from dledger_audit.checks.comparison import Range
from dledger_audit.checks.electorate import Electorate
from pyspark_dledger.columns import ddl
from pyspark_dledger.digests import piece_end

OUTCOME_SCHEMA: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("first_index", pa.int64()),
        ("last_index", pa.int64()),
        ("member", pa.string()),
        ("segment", pa.int64()),
        ("members", pa.string()),
    ]
)
OUTCOMES: Final = ddl(OUTCOME_SCHEMA)


@dataclass(frozen=True, slots=True)
class PieceComparer:
    """Compares the packs of one piece; Spark pickles it."""

    electorate: Electorate
    disputed: list[Range]
    fresh: frozenset[int]
    """First indexes of the disputed pieces before which the chain CRCs do not differ."""
    differing: list[Range]
    """The disputed pieces of which whole copies differ."""

    def compare(self, rows: pa.Table) -> pa.Table:
        """Compare all packs of one piece, rows of PACK_SCHEMA; return rows of OUTCOME_SCHEMA."""
        start = rows["piece"][0].as_py()
        if not _is_in(self.disputed, start):
            return OUTCOME_SCHEMA.empty_table()  # it was read because it lies between two others
        last = piece_end(start, np.array(self.electorate.cuts, np.int64)) - 1
        outcomes = agreement(
            _packs(rows),
            start,
            last,
            self.electorate,
            is_fresh=start in self.fresh,
            has_differed=_is_in(self.differing, start),
        )
        plain = [{name: getattr(each, name) for name in OUTCOME_SCHEMA.names} for each in outcomes]
        return pa.Table.from_pylist(plain, schema=OUTCOME_SCHEMA)


def _is_in(ranges: Sequence[Range], index: int) -> bool:
    return any(first <= index <= last for first, last in ranges)


def outcomes_of(rows: pa.Table) -> list[Outcome]:
    """Return the rows of OUTCOME_SCHEMA as outcomes."""
    return [Outcome(**row) for row in rows.to_pylist()]


def _packs(rows: pa.Table) -> dict[str, list[Pack]]:
    packs: dict[str, list[Pack]] = {}
    for row in rows.to_pylist():
        packs.setdefault(row["member"], []).append(
            Pack(
                segment=row["segment"],
                first_index=row["first_index"],
                flags=np.frombuffer(row["flags"], np.int32),
                identities=np.frombuffer(row["identities"], np.uint64),
                chains=np.frombuffer(row["chains"], np.uint64),
            )
        )
    return packs
