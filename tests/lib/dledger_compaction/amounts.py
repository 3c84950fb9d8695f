"""Amounts of logs on disk without Spark: Arrow and Python group the program's own rows."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from dledger_audit.compaction import amounts
from dledger_audit.compaction.decision import Rule
from dledger_audit.compaction.live import Part, divided
from pyspark_dledger.keys import decoder


@dataclass(frozen=True)
class LocalAmounts:
    """Implements `dledger_audit.compaction.amounts.AmountsPass`."""

    entries_max: int | None = None

    def states(
        self, parts: Sequence[Part], edges: Sequence[int], decoder_name: str, rule: Rule
    ) -> pa.Table:
        """Return the entries and bytes of each state by segment."""
        decode, last = decoder(decoder_name), dict[tuple[int, bytes], tuple[int, int, int, int]]()
        for part in divided(parts, self.entries_max):
            for batch in amounts.rows_of_part(part, amounts.segment_of(part, edges), decode):
                for row in batch.to_pylist():
                    at = (row["kind"], row["key"])
                    told = (row["mark"], row["segment"], row["entries"], row["bytes"])
                    last[at] = max(told, last.get(at, told))
        entries, sizes = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        reasons = {}
        for (kind, key), (mark, segment, count, size) in last.items():
            state = kind
            if kind == amounts.KEY and not rule.keeps(mark):
                continue
            if kind == amounts.KEY:
                state = amounts.TOMBSTONE if mark % 2 else amounts.VALUE
            if kind == amounts.LOST:
                reasons[segment, state] = key
            entries[segment, state] += count
            sizes[segment, state] += size
        rows = [
            {
                "segment": segment,
                "state": state,
                "entries": entries[segment, state],
                "bytes": sizes[segment, state],
                "reason": reasons.get((segment, state)),
            }
            for segment, state in entries
        ]
        return pa.Table.from_pylist(rows)
