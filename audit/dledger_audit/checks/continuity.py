"""Check that every member's log is unbroken from its begin index to its committed index.

The decoder has checked the entries within each segment; this module checks how segments connect.
"""

from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from dledger_audit.checks.findings import as_findings, check_name, has, of_flags, union
from dledger_audit.verdict import CRITICAL
from pyspark_dledger.layout import DAMAGED, Flag

FILES: Final = pa.schema(
    {"member": pa.string(), "segment": pa.int64(), "size_bytes": pa.int64()}.items()
)
"""The data files that a member's manifest lists."""
MEMBERS: Final = pa.schema(
    {"member": pa.string(), "begin_index": pa.int64(), "committed_index": pa.int64()}.items()
)
"""The begin index and the committed index from a member's manifest."""


def continuity(chunks: DataFrame, files: DataFrame, members: DataFrame) -> DataFrame:
    """Find gaps, repetitions and decreasing terms."""
    segments = _segments(chunks).join(files, ["member", "segment"])
    return union(
        of_flags(chunks, {Flag.TERM_BACK: CRITICAL}),
        _seams(segments, members),
    )


def _segments(chunks: DataFrame) -> DataFrame:
    """Reduce chunks to segments; take terms only from sound entries."""
    sound_index = F.when(~has(DAMAGED), F.col("first_index"))
    return chunks.groupBy("member", "segment").agg(
        F.min("first_index").alias("first_index"),
        F.max("last_index").alias("last_index"),
        F.min_by("first_term", sound_index).alias("first_term"),
        F.max_by("last_term", sound_index).alias("last_term"),
    )


def _seams(segments: DataFrame, members: DataFrame) -> DataFrame:
    """Compare each segment with the previous one, and the ends of the log with the manifest."""
    in_order = Window.partitionBy("member").orderBy("segment")
    seams = segments.join(members, "member", "right").withColumns(
        {
            "pos_before": F.lag(F.col("segment") + F.col("size_bytes")).over(in_order),
            "index_before": F.lag("last_index").over(in_order),
            "term_before": F.lag("last_term").over(in_order),
            "segment_after": F.lead("segment").over(in_order),
        }
    )
    here, first = F.col("segment"), F.col("first_index")
    begin = F.greatest("begin_index", F.lit(0))  # -1 for an empty log
    expected = F.coalesce(F.col("index_before") + 1, begin)
    missing_pos = F.when(here != F.col("pos_before"), F.col("pos_before"))
    is_held = here.isNotNull()
    is_last = F.col("segment_after").isNull()
    end = F.coalesce("last_index", begin - 1)
    problems = [
        _problem("missing_segment", missing_pos.isNotNull(), missing_pos, expected, first - 1),
        _problem(
            "missing_entries", missing_pos.isNull() & (first > expected), here, expected, first - 1
        ),
        _problem("repeated_entries", first < expected, here, first, expected - 1),
        _problem(
            check_name(Flag.TERM_BACK),
            F.col("first_term") < F.col("term_before"),
            here,
            first,
            first,
        ),
        _problem(
            "missing_entries",
            is_last & (end < F.col("committed_index")),
            F.when(is_held, here),
            end + 1,
            F.col("committed_index"),
        ),
    ]
    rows = seams.select("member", F.explode(F.array_compact(F.array(*problems))).alias("problem"))
    rows = rows.select("member", "problem.*").withColumn(
        "entries", F.col("last_index") - F.col("first_index") + 1
    )
    return as_findings(rows, F.col("check"), CRITICAL)


def _problem(check: str, when: Column, segment: Column, first: Column, last: Column) -> Column:
    """Return a struct that describes the problem, or null if `when` does not hold."""
    return F.when(
        when,
        F.struct(
            F.lit(check).alias("check"),
            segment.cast("long").alias("segment"),
            first.cast("long").alias("first_index"),
            last.cast("long").alias("last_index"),
        ),
    )
