"""The only pass over all entries: it reduces them to chunks, digests of up to 4096 entries each.

A chunk holds a member's entries from one data segment whose indexes differ only in the last 12 bits
and whose flags are equal; without faults, these are a single row. Spark aggregates before it
shuffles, so chunks are all that it moves or keeps of a log.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

CHUNK_BITS: Final = 12

ENTRY_COLUMNS: Final = (
    "member string, segment long, index long, term long, magic int, size int, body_size int, "
    "crc long, flags int"
)
"""Columns that the checks need; the data source decodes only these."""


def identity() -> Column:
    """Hash the fields on which members must agree.

    These exclude pos and the stored checksums: a member may legitimately hold an entry at a
    different position, and Java stores no checksums. The CRC that the reader computed stands for
    the body.
    """
    return F.xxhash64("index", "term", "magic", "body_size", "crc")


def with_chunk(entries: DataFrame) -> DataFrame:
    """Add the column `chunk`, the number of the chunk."""
    return entries.withColumn("chunk", F.shiftright("index", CHUNK_BITS))


def chunks(entries: DataFrame, agreed_index: int) -> DataFrame:
    """Reduce entries to chunks; `compared` and `digest` cover entries up to `agreed_index`."""
    is_compared = F.col("index") <= agreed_index
    return (
        with_chunk(entries)
        .groupBy("member", "segment", "chunk", "flags")
        .agg(
            F.count("*").alias("entries"),
            F.min("index").alias("first_index"),
            F.max("index").alias("last_index"),
            F.min_by("term", "index").alias("first_term"),
            F.max_by("term", "index").alias("last_term"),
            F.sum("size").alias("bytes"),
            F.count_if(is_compared).alias("compared"),
            F.bit_xor(F.when(is_compared, identity())).alias("digest"),
        )
    )
