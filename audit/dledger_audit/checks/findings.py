"""The columns of a finding, and functions that create findings."""

from collections.abc import Mapping
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from dledger_formats.log import disk
from pyspark_dledger.layout import Flag

COLUMNS: Final = {
    "check": "string",
    "severity": "string",
    "member": "string",
    "segment": "string",
    "first_index": "long",
    "last_index": "long",
    "entries": "long",
    "detail": "string",
}


def check_name(flag: Flag) -> str:
    """Return the name of the check that a decoder's flag stands for."""
    assert flag.name is not None, "expected a flag with one bit"
    return flag.name.lower()


def as_findings(rows: DataFrame, check: str | Column, severity: str | Column) -> DataFrame:
    """Turn rows with an index range into findings; missing columns get defaults.

    A numeric `segment` becomes the data file's name.
    """
    given = {
        "check": F.lit(check) if isinstance(check, str) else check,
        "severity": F.lit(severity) if isinstance(severity, str) else severity,
        "member": F.lit(""),
        "segment": F.lit(""),
        "detail": F.lit(""),
    }
    given |= {name: F.col(name) for name in rows.columns if name in COLUMNS}
    if dict(rows.dtypes).get("segment") == "bigint":
        name = F.lpad(F.col("segment").cast("string"), disk.FILE_NAME_DIGITS, "0")
        given["segment"] = F.coalesce(name, F.lit(""))
    return rows.select(*[given[name].cast(kind).alias(name) for name, kind in COLUMNS.items()])


def of_flags(chunks: DataFrame, severities: Mapping[Flag, str]) -> DataFrame:
    """Create one finding per member, segment and flag, with the range and number of entries."""
    names = [
        F.when(
            has(flag),
            F.struct(F.lit(check_name(flag)).alias("check"), F.lit(text).alias("severity")),
        )
        for flag, text in severities.items()
    ]
    rows = (
        chunks.where("flags <> 0")
        .withColumn("found", F.explode(F.array_compact(F.array(*names))))
        .groupBy("member", "segment", "found")
        .agg(
            F.min("first_index").alias("first_index"),
            F.max("last_index").alias("last_index"),
            F.sum("entries").alias("entries"),
        )
    )
    return as_findings(rows, F.col("found.check"), F.col("found.severity"))


def has(flags: Flag) -> Column:
    """Return a condition: the row has any of these flags."""
    return F.col("flags").bitwiseAND(F.lit(int(flags))) != 0


def union(*frames: DataFrame) -> DataFrame:
    """Concatenate DataFrames of findings."""
    return reduce(DataFrame.unionByName, frames)
