"""The one pass over every entry: from rows of entries to digests of 4096 of them.

A chunk is a member's entries of one data segment whose indexes agree in all but the last 12 bits,
and of those the ones with equal flags: where nothing is wrong, that is one row. Being aggregated
before the shuffle, chunks are all that Spark moves or keeps of a log.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

CHUNK_BITS: Final = 12

ENTRY_COLUMNS: Final = (
    "member string, segment long, index long, term long, magic int, size int, body_size int, "
    "crc long, flags int"
)
"""What the checks need of the data source, which decodes no more than this."""


def identity() -> Column:
    """Hash what members must agree on.

    Neither pos nor the checksums: a member may soundly hold an entry at another place, and Java
    fills in no checksums. The body is represented by the CRC that the reader computed.
    """
    return F.xxhash64("index", "term", "magic", "body_size", "crc")


def with_chunk(entries: DataFrame) -> DataFrame:
    """Add the number of the chunk."""
    return entries.withColumn("chunk", F.shiftright("index", CHUNK_BITS))


def chunks(entries: DataFrame, agreed_index: int) -> DataFrame:
    """Reduce entries to chunks; `compared` and `digest` are of those up to `agreed_index`."""
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
