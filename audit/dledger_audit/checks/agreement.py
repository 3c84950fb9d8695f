"""Check that all members hold the same entries, up to the lowest committed index.

Chunks are compared first; the chunks that differ are then compared entry by entry. A chunk also
differs if members hold different parts of it, because one begins later or has lost entries. Its
entries then agree, and nothing is reported.

Damaged entries do not count as copies, since their bytes are not what was written. A finding names
a member only if a majority of the group holds a different version; otherwise the audit cannot tell
which version is right.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from dledger_audit.checks.chunks import identity, with_chunk
from dledger_audit.checks.findings import as_findings, has, union
from dledger_audit.verdict import CRITICAL, MINORITY, NO_MAJORITY, TOO_FEW_COPIES
from pyspark_dledger.layout import DAMAGED, Flag


@dataclass(frozen=True, slots=True, kw_only=True)
class Voters:
    """The group's voters, and the range of indexes in which their logs must agree."""

    count: int
    unread_count: int
    """Number of voters whose logs were not read."""
    last_index: int
    """Lowest committed index of all members; later entries may legitimately differ."""
    complete_from: int
    """Highest begin index of all members; some may have removed earlier entries."""

    @property
    def majority(self) -> int:
        """Smallest number of voters that is more than half."""
        return self.count // 2 + 1


def disputed(chunks: DataFrame, voters: Voters) -> DataFrame:
    """Select chunks in which entries may differ or may lack copies on a majority of the group."""
    held = (
        chunks.where("compared > 0")
        .groupBy("member", "chunk")
        .agg(
            F.bit_xor(F.when(~has(DAMAGED), F.col("digest"))).alias("digest"),
            F.sum(F.when(has(DAMAGED), 0).otherwise(F.col("compared"))).alias("compared"),
        )
    )
    return (
        held.groupBy("chunk")
        .agg(
            F.count_distinct(F.struct("digest", "compared")).alias("versions"),
            F.count("*").alias("holders"),
        )
        .where((F.col("versions") > 1) | (F.col("holders") + voters.unread_count < voters.majority))
        .select("chunk")
    )


def agreement(entries: DataFrame, disputed: DataFrame, voters: Voters) -> DataFrame:
    """Compare the entries of the disputed chunks."""
    copies = _copies(
        with_chunk(entries)
        .where(F.col("index") <= voters.last_index)
        .join(F.broadcast(disputed), "chunk", "left_semi")
    )
    differs = F.col("versions") > 1
    is_decided = F.col("most_copies") >= voters.majority
    is_too_few = (F.col("index") >= voters.complete_from) & (
        F.col("intact") + F.col("unread") + voters.unread_count < voters.majority
    )
    copies = copies.where(differs | is_too_few).coalesce(1).localCheckpoint()  # used three times
    valid = copies.where(differs & F.col("version").isNotNull())
    return union(
        _minorities(valid.where(is_decided & (F.col("copies") < F.col("most_copies")))),
        _without_majority(valid.where(~is_decided)),
        _too_few(copies.where(is_too_few)),
    )


def _copies(suspects: DataFrame) -> DataFrame:
    """Count the copies of each index and version; damaged copies have the version null."""
    of_index = Window.partitionBy("index")
    return (
        suspects.withColumn("version", F.when(~has(DAMAGED), identity()))
        .groupBy("index", "version")
        .agg(
            F.count("version").alias("copies"),
            F.count_if(has(Flag.UNREADABLE)).alias("unread"),
            F.collect_list(F.struct("member", "segment")).alias("holders"),
        )
        .select(
            "index",
            "version",
            "copies",
            "holders",
            F.count("version").over(of_index).alias("versions"),
            F.max("copies").over(of_index).alias("most_copies"),
            F.sum("copies").over(of_index).alias("intact"),
            F.sum("unread").over(of_index).alias("unread"),
        )
    )


def _minorities(copies: DataFrame) -> DataFrame:
    rows = copies.select("index", F.explode("holders").alias("holder"))
    return as_findings(
        rows.groupBy(F.col("holder.member"), F.col("holder.segment")).agg(*_range()),
        MINORITY,
        CRITICAL,
    )


def _without_majority(copies: DataFrame) -> DataFrame:
    holders = F.array_sort(F.array_distinct(F.flatten(F.collect_set("holders.member"))))
    rows = copies.groupBy().agg(*_range(), F.array_join(holders, ", ").alias("detail"))
    return as_findings(rows.where("entries > 0"), NO_MAJORITY, CRITICAL)


def _too_few(copies: DataFrame) -> DataFrame:
    return as_findings(
        copies.groupBy().agg(*_range()).where("entries > 0"), TOO_FEW_COPIES, CRITICAL
    )


def _range() -> list[Column]:
    return [
        F.min("index").alias("first_index"),
        F.max("index").alias("last_index"),
        F.count_distinct("index").alias("entries"),
    ]
