"""Compact logs on disk in this process, with the program's own parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dledger_audit.compaction import archive as archives
from dledger_audit.compaction.archive import Archive
from dledger_audit.compaction.compact import compact, plan
from dledger_audit.compaction.decision import Rule
from dledger_audit.compaction.live import (
    LOST_MARK,
    MARKS_SCHEMA,
    LiveEntries,
    Part,
    divided,
    marks_of_part,
    words_of,
)
from dledger_formats.http.status import Manifest
from dledger_logs.layout import Log, manifest
from pyspark_dledger.copies import Copy
from pyspark_dledger.segments import WINDOW_BYTES


@dataclass(frozen=True)
class LocalLive:
    """Implements `dledger_audit.compaction.live.LivePass`: Arrow groups the keys."""

    entries_max: int | None = None

    def live(self, parts: Sequence[Part], decoder_name: str, rule: Rule) -> LiveEntries:
        """Decide which entries stay."""
        batches = [
            batch
            for part in divided(parts, self.entries_max)
            for batch in marks_of_part(part, decoder_name)
        ]
        rows = pa.Table.from_batches(batches, schema=MARKS_SCHEMA)
        last = rows.group_by("key").aggregate([("mark", "max")])
        last = last.filter(pa.array(rule.keeps(mark) for mark in last["mark_max"].to_pylist()))
        marks = last["mark_max"].to_numpy()
        at = marks // 2 - parts[0].first_index
        bits = pa.table(
            {
                "word": at >> 6,
                "bits": (np.uint64(1) << (at & 63).astype(np.uint64)).view(np.int64),
                "lost": pc.if_else(pa.array(marks == LOST_MARK), last["key"], None),
            }
        )
        words = bits.group_by("word").aggregate([("bits", "sum"), ("lost", "min")])
        table = pa.table(
            {
                "word": words["word"],
                "bits": pc.cast(words["bits_sum"], pa.int64()),
                "lost": words["lost_min"],
            }
        )
        return words_of(parts[0].first_index, parts[-1].last_index, table)


def copies_of(logs: Mapping[str, Log], says: Mapping[str, Manifest] | None = None) -> list[Copy]:
    """Return logs on disk as copies; `says` replaces manifests."""
    served = {member: manifest(log, member, peers=logs) for member, log in logs.items()}
    served |= says or {}
    return [
        Copy(member=member, place=str(log.root), manifest=served[member])
        for member, log in logs.items()
    ]


def compacted(
    copies: Sequence[Copy],
    path: Path,
    decoder_name: str = "kv",
    *,
    tombstone_entries: int = 20,
    entries_max: int | None = None,
    window_bytes: int = WINDOW_BYTES,
) -> Archive | None:
    """Compact copies to an archive; return None if the archive is already up to date."""
    with archives.locked(path):
        previous = Archive.load(path)
        planned = plan("g", copies, decoder_name, tombstone_entries, previous)
        if planned is None:
            return None
        return compact(planned, copies, LocalLive(entries_max), path, window_bytes)
