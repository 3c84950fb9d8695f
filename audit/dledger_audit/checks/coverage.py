"""How much was read, and how much of that do checksums vouch for?"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from dledger_audit.checks.findings import has, of_flags
from dledger_audit.verdict import INFO, WARNING
from pyspark_dledger.layout import ABSENT, DAMAGED, Flag

SEVERITIES: Final = {Flag.UNREADABLE: WARNING, Flag.NO_CRC: INFO}


def coverage(chunks: DataFrame) -> DataFrame:
    """Find what could not be judged: one finding a member, segment and reason."""
    return of_flags(chunks, SEVERITIES)


def totals(chunks: DataFrame) -> DataFrame:
    """Count what was read: a row for every member of which anything was."""
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
