"""Do all members hold the same entries, up to the lowest committed index?

Chunks are compared first, and then, entry by entry, those that differ. A chunk also differs when
members hold different parts of it, because one begins later or has lost some: then its entries
agree, and nothing is reported.

Damaged entries have no vote: what their bytes say is not what was written. A member is named only
if more than half of the group hold something else; with less than that, nobody can tell who is
right.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from dledger_audit.checks.chunks import identity, with_chunk
from dledger_audit.checks.findings import as_findings, has, union
from dledger_audit.verdict import CRITICAL, MINORITY, NO_MAJORITY, TOO_FEW_COPIES
from pyspark_dledger.layout import DAMAGED, Flag


@dataclass(frozen=True, slots=True, kw_only=True)
class Electorate:
    """Who has a vote, and over what."""

    voters_count: int
    unread_count: int
    """Voters of which nothing was read."""
    last_index: int
    """Lowest committed index: what lies behind may soundly differ."""
    complete_from: int
    """Highest begin index: what lies before may soundly have been removed by some."""

    @property
    def majority(self) -> int:
        """The fewest that are more than half."""
        return self.voters_count // 2 + 1


def disputed(chunks: DataFrame, electorate: Electorate) -> DataFrame:
    """Choose the chunks in which an entry may differ, or may be on less than half of the group."""
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
        .where(
            (F.col("versions") > 1)
            | (F.col("holders") + electorate.unread_count < electorate.majority)
        )
        .select("chunk")
    )


def agreement(entries: DataFrame, disputed: DataFrame, electorate: Electorate) -> DataFrame:
    """Compare the entries of the disputed chunks."""
    votes = _votes(
        with_chunk(entries)
        .where(F.col("index") <= electorate.last_index)
        .join(F.broadcast(disputed), "chunk", "left_semi")
    )
    differs = F.col("versions") > 1
    is_decided = F.col("most_votes") >= electorate.majority
    is_too_few = (F.col("index") >= electorate.complete_from) & (
        F.col("intact") + F.col("unread") + electorate.unread_count < electorate.majority
    )
    votes = votes.where(differs | is_too_few).coalesce(1).localCheckpoint()  # it is asked thrice
    valid = votes.where(differs & F.col("version").isNotNull())
    return union(
        _minorities(valid.where(is_decided & (F.col("votes") < F.col("most_votes")))),
        _without_majority(valid.where(~is_decided)),
        _too_few(votes.where(is_too_few)),
    )


def _votes(suspects: DataFrame) -> DataFrame:
    """Count who holds what: a row for every index and version; the version null has no vote."""
    of_index = Window.partitionBy("index")
    return (
        suspects.withColumn("version", F.when(~has(DAMAGED), identity()))
        .groupBy("index", "version")
        .agg(
            F.count("version").alias("votes"),
            F.count_if(has(Flag.UNREADABLE)).alias("unread"),
            F.collect_list(F.struct("member", "segment")).alias("holders"),
        )
        .select(
            "index",
            "version",
            "votes",
            "holders",
            F.count("version").over(of_index).alias("versions"),
            F.max("votes").over(of_index).alias("most_votes"),
            F.sum("votes").over(of_index).alias("intact"),
            F.sum("unread").over(of_index).alias("unread"),
        )
    )


def _minorities(votes: DataFrame) -> DataFrame:
    rows = votes.select("index", F.explode("holders").alias("holder"))
    return as_findings(
        rows.groupBy(F.col("holder.member"), F.col("holder.segment")).agg(*_range()),
        MINORITY,
        CRITICAL,
    )


def _without_majority(votes: DataFrame) -> DataFrame:
    holders = F.array_sort(F.array_distinct(F.flatten(F.collect_set("holders.member"))))
    rows = votes.groupBy().agg(*_range(), F.array_join(holders, ", ").alias("detail"))
    return as_findings(rows.where("entries > 0"), NO_MAJORITY, CRITICAL)


def _too_few(votes: DataFrame) -> DataFrame:
    return as_findings(
        votes.groupBy().agg(*_range()).where("entries > 0"), TOO_FEW_COPIES, CRITICAL
    )


def _range() -> list[Column]:
    return [
        F.min("index").alias("first_index"),
        F.max("index").alias("last_index"),
        F.count_distinct("index").alias("entries"),
    ]
