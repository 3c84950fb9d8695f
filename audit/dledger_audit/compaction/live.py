"""The one pass over all keys: which entries up to the clean point stay.

Spark's workers read ranges of entries, decode the keys, and reduce each block of entries to one
mark for each key. Spark groups these by key, on disk if they do not fit the memory, and reduces the
last marks to one bit for each entry. So the driver holds one bit an entry, however many keys there
are, and the workers one block.

An entry without a key gets a key of its own, so that each entry is decided once, by one call of its
decoder: a decoder that answers differently the second time cannot lose anything.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from dledger_audit.compaction.decision import Rule, mark_of
from dledger_audit.progress import doing
from dledger_audit.tasks import TasksDone
from dledger_formats.log import disk
from pyspark_dledger.copies import Copy, RefusedError
from pyspark_dledger.intact import NoIntactCopyError, Reader, Slice
from pyspark_dledger.keys import Decoder, DecoderError, decoder
from pyspark_dledger.layout import Bools, Longs
from pyspark_dledger.plan import in_order

MARKS_SCHEMA: Final = pa.schema([("key", pa.binary()), ("mark", pa.int64())])
MARKS: Final = "key binary, mark long"
KEYS_PER_PARTITION: Final = 1 << 20
WORD_BITS: Final = 64
_WITH_KEY: Final = b"\1"
_WITHOUT_KEY: Final = struct.Struct(">bq")
LOST_MARK: Final = -2
"""The mark of a row that says why a part was not read; it is even, so that it stays."""
_LOST: Final = struct.Struct(">bq")
"""What precedes the reason in its key: 2, and the first index of the part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Consecutive entries of a log, and the copies to read them from, the preferred one first."""

    first_index: int
    last_index: int
    copies: tuple[Copy, ...]


@dataclass(frozen=True, slots=True)
class LiveEntries:
    """Which entries stay, one bit for each index from `first_index` on."""

    first_index: int
    words: npt.NDArray[np.uint64]

    def keeps(self, index: Longs) -> Bools:
        """Return which of these entries stay; all must be in the range."""
        at = index - self.first_index
        bits = self.words[at >> 6] >> (at & 63).astype(np.uint64)
        keeps: Bools = (bits & np.uint64(1)).astype(np.bool_)
        return keeps


class LivePass(Protocol):
    """Decides which entries stay."""

    def live(self, parts: Sequence[Part], decoder_name: str, rule: Rule) -> LiveEntries:
        """Read the parts, which follow each other and end at the clean point.

        Raises RefusedError if an entry is intact on no copy, or its decoder failed.
        """
        ...


def marks(entries: Slice, decode: Decoder) -> pa.RecordBatch:
    """Return one row of MARKS_SCHEMA for each key: the mark of its last entry in this slice."""
    run, found = entries.entries, dict[bytes, int]()
    raw = run.view.data
    part = slice(entries.start, entries.end)
    is_normal = run.headers["magic"][part] == disk.NORMAL
    starts, sizes = run.bodies.offsets[part][is_normal], run.bodies.sizes[part][is_normal]
    indexes = run.index[part][is_normal].tolist()
    for index, start, end in zip(indexes, starts.tolist(), (starts + sizes).tolist(), strict=True):
        decoded = decode(raw[start:end].tobytes())
        if decoded is None:
            found[_WITHOUT_KEY.pack(0, index)] = mark_of(index, is_tombstone=False)
        else:
            found[_WITH_KEY + decoded.key] = mark_of(index, is_tombstone=decoded.is_tombstone)
    columns = [pa.array(found.keys(), pa.binary()), pa.array(found.values(), pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=MARKS_SCHEMA)


def marks_of_part(part: Part, decoder_name: str) -> Iterator[pa.RecordBatch]:
    """Yield the marks of a part, as one task reads it.

    An error of a task would reach the driver as a traceback, and other tasks of Spark would try
    again what cannot succeed. So a row says why the rest of the part was not read.
    """
    try:
        decode = decoder(decoder_name)
        with Reader() as reader:
            for entries in reader.read(part.copies, part.first_index, part.last_index):
                yield marks(entries, decode)
    except (NoIntactCopyError, DecoderError) as lost:
        key = _LOST.pack(2, part.first_index) + str(lost).encode()
        columns = [pa.array([key], pa.binary()), pa.array([LOST_MARK], pa.int64())]
        yield pa.RecordBatch.from_arrays(columns, schema=MARKS_SCHEMA)


def divided(parts: Sequence[Part], entries_max: int | None = None) -> list[Part]:
    """Divide parts where a segment of the preferred copy begins, or after `entries_max` entries."""
    tasks = []
    for part in parts:
        edges = {file.first_index for file in in_order(part.copies[0].manifest.data)}
        if entries_max is not None:
            edges |= set(range(part.first_index, part.last_index + 1, entries_max))
        inner = sorted(edge for edge in edges if part.first_index < edge <= part.last_index)
        firsts = [part.first_index, *inner]
        lasts = [*(edge - 1 for edge in inner), part.last_index]
        tasks += [
            Part(first_index=first, last_index=last, copies=part.copies)
            for first, last in zip(firsts, lasts, strict=True)
        ]
    return tasks


def words_of(first_index: int, last_index: int, table: pa.Table) -> LiveEntries:
    """Return the bits from rows of (word, bits, lost), of which each word occurs once.

    Raises RefusedError if a part was not read; `lost` is then the key of the row that says so.
    """
    if lost := table["lost"].drop_null().to_pylist():
        raise RefusedError(min(lost)[_LOST.size :].decode())
    words = np.zeros((last_index - first_index) // WORD_BITS + 1, np.uint64)
    words[table["word"].to_numpy()] = table["bits"].to_numpy().view(np.uint64)
    return LiveEntries(first_index, words)


@dataclass(frozen=True, slots=True)
class SparkLive:
    """Runs the pass on Spark; `entries_max` divides it into more tasks than one a segment."""

    spark: SparkSession
    entries_max: int | None = None

    def live(self, parts: Sequence[Part], decoder_name: str, rule: Rule) -> LiveEntries:
        """Decide which entries stay."""
        first_index, last_index = parts[0].first_index, parts[-1].last_index
        tasks = divided(parts, self.entries_max)

        done = TasksDone(self.spark.sparkContext, len(tasks))

        def marks_of_task(number: int) -> Iterator[pa.RecordBatch]:
            return marks_of_part(tasks[number], decoder_name)

        counted = done.counting(marks_of_task)

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from counted(number)

        partitions = max(4, (last_index - first_index) // KEYS_PER_PARTITION)
        self.spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        numbers = self.spark.range(0, len(tasks), 1, len(tasks))
        last = numbers.mapInArrow(read, MARKS).groupBy("key").agg(sql.max("mark").alias("mark"))
        mark = sql.col("mark")
        is_kept = (mark % 2 == 0) | (mark >= rule.first_tombstone_mark)
        at = sql.shiftright("mark", 1) - sql.lit(first_index)
        words = (
            last.where(is_kept)
            .select(
                sql.shiftright(at, 6).alias("word"),
                (at % WORD_BITS).cast("int").alias("bit"),
                sql.when(mark == LOST_MARK, sql.col("key")).alias("lost"),
            )
            .selectExpr("word", "shiftleft(1L, bit) AS bits", "lost")
            .groupBy("word")
            .agg(sql.bit_or("bits").alias("bits"), sql.min("lost").alias("lost"))
        )
        with doing("deciding which entries stay", done.share):
            found = words.toArrow()
        return words_of(first_index, last_index, found)
