"""Report entries that were not read or that no checksum covers, and count what was read."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from dledger_audit.checks.findings import has, of_flags
from dledger_audit.verdict import INFO, WARNING
from pyspark_dledger.layout import ABSENT, DAMAGED, Flag

SEVERITIES: Final = {Flag.UNREADABLE: WARNING, Flag.NO_CRC: INFO}


def coverage(chunks: DataFrame) -> DataFrame:
    """Find entries that could not be verified: one finding per member, segment and reason."""
    return of_flags(chunks, SEVERITIES)


def totals(chunks: DataFrame) -> DataFrame:
    """Count what was read: one row for each member from which any entry was read."""
    is_sound = ~has(DAMAGED)
    return (
        chunks.where(~has(ABSENT))
        .groupBy("member")
        .agg(
            F.min("first_index").alias("first_index"),
            F.max("last_index").alias("last_index"),
            F.sum("entries").alias("entries"),
            F.sum(F.when(is_sound, F.col("bytes")).otherwise(0)).alias("record_bytes"),
            F.sum(F.when(is_sound, 0).otherwise(F.col("entries"))).alias("damaged"),
            F.sum(F.when(has(Flag.NO_CRC), F.col("entries")).otherwise(0)).alias("uncovered"),
        )
    )
