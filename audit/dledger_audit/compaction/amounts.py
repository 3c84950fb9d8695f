"""How many bytes of each segment are live, dead and tombstones, by the rules of `compact`.

One more pass over the entries up to the clean point. Spark's workers reduce each block of entries
to one row for each key and one row for the block; Spark groups the rows by key, on disk if they do
not fit the memory, and then by segment. So the driver gets three rows a segment, however many keys
there are.

The decisions are those of `live`: the same parts, the same marks, the same rule.
"""

import bisect
import struct
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from dledger_audit.compaction.compact import plan
from dledger_audit.compaction.decision import Rule, mark_of
from dledger_audit.compaction.live import KEYS_PER_PARTITION, Part, divided
from dledger_audit.progress import doing
from dledger_audit.tasks import TasksDone
from dledger_formats.http.status import Manifest
from dledger_formats.log import disk
from pyspark_dledger.copies import Copy, RefusedError
from pyspark_dledger.intact import NoIntactCopyError, Reader, Slice
from pyspark_dledger.keys import Decoder, DecoderError, decoder
from pyspark_dledger.plan import in_order

ROWS_SCHEMA: Final = pa.schema(
    [
        ("kind", pa.int8()),
        ("key", pa.binary()),
        ("mark", pa.int64()),
        ("segment", pa.int64()),
        ("entries", pa.int64()),
        ("bytes", pa.int64()),
    ]
)
ROWS: Final = "kind byte, key binary, mark long, segment long, entries long, bytes long"
KEY: Final = 0
WHOLE: Final = 1
"""All entries of a block that may have a key."""
KEYLESS: Final = 2
"""The entries of a block that have no key, or that the decoder cannot read."""
LOST: Final = 3
"""Entries that no member has intact, or whose decoder failed; the key is the reason."""
VALUE: Final = 4
TOMBSTONE: Final = 5
"""The states of last entries that stay, beside WHOLE and KEYLESS."""
_FIRST_INDEX: Final = struct.Struct(">q")


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentAmounts:
    """What a run of compaction would do with the entries of one segment up to the clean point.

    Bytes are those of bodies: an entry that goes leaves an entry without a body.
    """

    segment: str
    """Name of the data file, on the member with the most entries."""
    first_index: int
    last_index: int
    """The last entry of the segment up to the clean point."""
    live_entries: int = 0
    """Entries that stay: each key's last value, and entries without a key."""
    live_bytes: int = 0
    tombstone_entries: int = 0
    """Tombstones that stay, since they are too young to go."""
    tombstone_bytes: int = 0
    dead_entries: int = 0
    """Entries that go: replaced values, and old tombstones."""
    dead_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """The amounts of all segments, or why they are not known."""

    decoder: str
    """Empty if the audit was given no decoder."""
    tombstone_entries: int
    clean_index: int = -1
    """The last index whose entries may go; -1 if that is not known."""
    segments: list[SegmentAmounts] = field(default_factory=list)
    problem: str = ""
    """Why the amounts are not known; empty if they are."""


NO_DECODER: Final = Amounts(
    decoder="", tombstone_entries=0, problem="no decoder was given (--decoder)"
)


class AmountsPass(Protocol):
    """Reduces parts of a log to states of entries by segment."""

    def states(
        self, parts: Sequence[Part], edges: Sequence[int], decoder_name: str, rule: Rule
    ) -> pa.Table:
        """Return rows of segment, state, entries, bytes, and the reason where entries are LOST.

        `edges` are the first indexes of the segments.
        """
        ...


def measure(
    passes: AmountsPass,
    group: str,
    manifests: Mapping[str, Manifest],
    places: Mapping[str, str],
    voters: Iterable[str],
    *,
    decoder_name: str,
    tombstone_entries: int,
) -> Amounts:
    """Return what the first run of `compact` would drop now.

    A failure, such as one of a user's own decoder, costs only the amounts: the checks of the audit
    are done by then, and must not be lost.
    """
    known = Amounts(decoder=decoder_name, tombstone_entries=tombstone_entries)
    if missing := sorted(set(voters) - manifests.keys()):
        return _unknown(known, f"{', '.join(missing)} did not answer, so its commit is not known")
    members = [
        Copy(member=member, place=places[member], manifest=manifests[member])
        for member in sorted(voters)
    ]
    try:
        planned = plan(group, members, decoder_name, tombstone_entries, None)
    except RefusedError as refused:
        return _unknown(known, str(refused))
    assert planned is not None  # only a run after another one may have nothing to do
    parts, clean = planned.to_decide, planned.rule.clean_index
    files = [
        file for file in in_order(parts[0].copies[0].manifest.data) if file.first_index <= clean
    ]
    firsts = [max(parts[0].first_index, file.first_index) for file in files]
    try:
        table = passes.states(parts, firsts, decoder_name, planned.rule)
    except Exception as error:
        traceback.print_exc()
        failed = f"reading the entries failed with {type(error).__name__}; the audit's log has more"
        return _unknown(known, failed)
    if (reason := _reason(table)) is not None:
        return _unknown(known, reason)
    lasts = [*(first - 1 for first in firsts[1:]), clean]
    found = {(row["segment"], row["state"]): row for row in table.to_pylist()}
    segments = [
        _segment(file.name, first, last, found)
        for file, first, last in zip(files, firsts, lasts, strict=True)
    ]
    return Amounts(
        decoder=decoder_name,
        tombstone_entries=tombstone_entries,
        clean_index=clean,
        segments=segments,
    )


def _unknown(known: Amounts, problem: str) -> Amounts:
    return Amounts(
        decoder=known.decoder, tombstone_entries=known.tombstone_entries, problem=problem
    )


def _segment(
    name: str, first: int, last: int, found: Mapping[tuple[int, int], Mapping[str, int]]
) -> SegmentAmounts:
    def of(state: int) -> tuple[int, int]:
        row = found.get((first, state))
        return (row["entries"], row["bytes"]) if row else (0, 0)

    whole, keyless, value, tombstone = map(of, (WHOLE, KEYLESS, VALUE, TOMBSTONE))
    live = (keyless[0] + value[0], keyless[1] + value[1])
    return SegmentAmounts(
        segment=name,
        first_index=first,
        last_index=last,
        live_entries=live[0],
        live_bytes=live[1],
        tombstone_entries=tombstone[0],
        tombstone_bytes=tombstone[1],
        dead_entries=whole[0] - live[0] - tombstone[0],
        dead_bytes=whole[1] - live[1] - tombstone[1],
    )


def rows_of(entries: Slice, segment: int, decode: Decoder) -> pa.RecordBatch:
    """Return rows of ROWS_SCHEMA: one for each key, with its last entry, and two for the slice."""
    run, found = entries.entries, dict[bytes, tuple[int, int]]()
    raw, part = run.view.data, slice(entries.start, entries.end)
    is_normal = run.headers["magic"][part] == disk.NORMAL
    starts, sizes = run.bodies.offsets[part][is_normal], run.bodies.sizes[part][is_normal]
    indexes = run.index[part][is_normal]
    keyless_entries = keyless_bytes = 0
    for index, start, size in zip(indexes.tolist(), starts.tolist(), sizes.tolist(), strict=True):
        decoded = decode(raw[start : start + size].tobytes())
        if decoded is None:
            keyless_entries += 1
            keyless_bytes += size
        else:
            found[decoded.key] = (mark_of(index, is_tombstone=decoded.is_tombstone), size)
    block = _FIRST_INDEX.pack(entries.first_index)
    count = len(found)
    marks, bodies = zip(*found.values(), strict=True) if found else ((), ())
    columns = [
        pa.array([*[KEY] * count, WHOLE, KEYLESS], pa.int8()),
        pa.array([*found.keys(), block, block], pa.binary()),
        pa.array([*marks, 0, 0], pa.int64()),
        pa.array([segment] * (count + 2), pa.int64()),
        pa.array([*[1] * count, len(indexes), keyless_entries], pa.int64()),
        pa.array([*bodies, int(np.sum(sizes)), keyless_bytes], pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ROWS_SCHEMA)


def rows_of_part(part: Part, segment: int, decode: Decoder) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part, as one task reads it."""
    try:
        with Reader() as reader:
            for entries in reader.read(part.copies, part.first_index, part.last_index):
                yield rows_of(entries, segment, decode)
    except (NoIntactCopyError, DecoderError) as lost:
        values = [[LOST], [str(lost).encode()], [0], [segment], [0], [0]]
        columns = [
            pa.array(value, each.type) for value, each in zip(values, ROWS_SCHEMA, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=ROWS_SCHEMA)


def segment_of(part: Part, edges: Sequence[int]) -> int:
    """Return the first index of the segment that a part belongs to."""
    return edges[bisect.bisect_right(edges, part.first_index) - 1]


@dataclass(frozen=True, slots=True)
class SparkAmounts:
    """Runs the pass on Spark; `entries_max` divides it into more tasks than one a segment.

    The pass starts Spark SQL, because a failed start counts as a failure of the pass.
    """

    context: SparkContext
    entries_max: int | None = None

    def states(
        self, parts: Sequence[Part], edges: Sequence[int], decoder_name: str, rule: Rule
    ) -> pa.Table:
        """Return the entries and bytes of each state by segment."""
        tasks = [(part, segment_of(part, edges)) for part in divided(parts, self.entries_max)]
        done = TasksDone(self.context, len(tasks))

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            decode = decoder(decoder_name)

            def rows_of_task(number: int) -> Iterator[pa.RecordBatch]:
                part, segment = tasks[number]
                return rows_of_part(part, segment, decode)

            counted = done.counting(rows_of_task)
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from counted(number)

        entries = parts[-1].last_index - parts[0].first_index
        partitions = max(4, entries // KEYS_PER_PARTITION)
        spark = SparkSession(self.context)
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        rows = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(read, ROWS)
        last = sql.max(sql.struct("mark", "segment", "entries", "bytes")).alias("last")
        mark = sql.col("mark")
        stays = sql.when(mark % 2 == 0, VALUE).when(mark >= rule.first_tombstone_mark, TOMBSTONE)
        states = (
            rows.groupBy("kind", "key")
            .agg(last)
            .select("kind", "key", "last.*")
            .withColumn("state", sql.when(sql.col("kind") == KEY, stays).otherwise(sql.col("kind")))
            .where("state is not null")
            .groupBy("segment", "state")
            .agg(
                sql.sum("entries").alias("entries"),
                sql.sum("bytes").alias("bytes"),
                sql.min(sql.when(sql.col("kind") == LOST, sql.col("key"))).alias("reason"),
            )
        )
        with doing("measuring how much is live", done.share):
            return states.toArrow()


def _reason(table: pa.Table) -> str | None:
    """Return why some entries were not read; None if all were."""
    reasons = [raw for raw in table["reason"].to_pylist() if raw is not None]
    return min(reasons).decode() if reasons else None
