"""One audit, from what the members say to findings and totals."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dledger_audit.capture import Capture
from dledger_audit.checks.agreement import Electorate, agreement, disputed
from dledger_audit.checks.chunks import CHUNK_BITS, ENTRY_COLUMNS, chunks
from dledger_audit.checks.continuity import FILES, MEMBERS, continuity
from dledger_audit.checks.coverage import coverage, totals
from dledger_audit.checks.findings import union
from dledger_audit.checks.integrity import integrity
from dledger_audit.explain import explain
from dledger_formats.audit import Finding
from dledger_formats.log import disk
from pyspark_dledger.plan import in_order


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTotals:
    """What was read of one member."""

    first_index: int
    last_index: int
    entries: int
    record_bytes: int
    damaged: int
    """Entries that are there but not what was once written."""
    uncovered: int
    """Entries that no checksum covers."""


NOTHING: Final = MemberTotals(
    first_index=-1, last_index=-1, entries=0, record_bytes=0, damaged=0, uncovered=0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """The result, before it is put into words."""

    findings: tuple[Finding, ...]
    totals: Mapping[str, MemberTotals]
    """Of every member that answered, by id."""


def audit(spark: SparkSession, capture: Capture) -> Audited:
    """Read the logs once, and again where members differ."""
    entries = _entries(spark, capture)
    electorate = _electorate(capture)
    # Cut off from the logs, so that no check reads them again unawares; and in one partition, so
    # that none has to shuffle.
    digests = chunks(entries, electorate.last_index).coalesce(1).localCheckpoint()
    rows = union(
        integrity(digests),
        continuity(digests, _files(spark, capture), _members(spark, capture)),
        coverage(digests),
    ).collect()
    rows += _disagreements(entries, digests, electorate)
    counted = {row["member"]: _totals(row) for row in totals(digests).collect()}
    return Audited(
        findings=(*capture.findings, *(_finding(row) for row in rows)),
        totals={member: counted.get(member, NOTHING) for member in capture.manifests},
    )


def _entries(spark: SparkSession, capture: Capture) -> DataFrame:
    """Read the columns that the checks need, as far as the manifests reach."""
    manifests = {
        member: json.loads(manifest.to_json()) for member, manifest in capture.manifests.items()
    }
    members = ",".join(f"{member}={capture.urls[member]}" for member in manifests)
    return (
        spark.read.format("dledger")
        .schema(ENTRY_COLUMNS)
        .option("manifests", json.dumps(manifests))
        .load(members)
    )


def _electorate(capture: Capture) -> Electorate:
    begins = [manifest.status.ledger_begin_index for manifest in capture.manifests.values()]
    return Electorate(
        voters_count=capture.voters_count,
        unread_count=capture.voters_count - len(capture.manifests),
        last_index=capture.agreed_index,
        complete_from=max(begins),
    )


def _disagreements(entries: DataFrame, digests: DataFrame, electorate: Electorate) -> list[Row]:
    """Compare chunks, and read again what lies between the first and the last that differ."""
    differing = disputed(digests, electorate)
    first, last = differing.agg(F.min("chunk"), F.max("chunk")).collect()[0]
    if first is None:
        return []
    between = entries.where(
        (F.col("index") >= first << CHUNK_BITS) & (F.col("index") < (last + 1) << CHUNK_BITS)
    )
    return agreement(between, differing, electorate).collect()


def _files(spark: SparkSession, capture: Capture) -> DataFrame:
    rows = [
        {
            "member": member,
            "segment": disk.start_offset(file.name),
            "size_bytes": file.size_bytes,
        }
        for member, manifest in capture.manifests.items()
        for file in in_order(manifest.data)
    ]
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=FILES))


def _members(spark: SparkSession, capture: Capture) -> DataFrame:
    rows = [
        {
            "member": member,
            "begin_index": manifest.status.ledger_begin_index,
            "committed_index": manifest.status.committed_index,
        }
        for member, manifest in capture.manifests.items()
    ]
    return spark.createDataFrame(pa.Table.from_pylist(rows, schema=MEMBERS))


def _totals(row: Row) -> MemberTotals:
    return MemberTotals(**{name: int(row[name]) for name in MemberTotals.__slots__})


def _finding(row: Row) -> Finding:
    return Finding(
        check=row["check"],
        severity=row["severity"],
        member=row["member"],
        segment=row["segment"],
        first_index=row["first_index"],
        last_index=row["last_index"],
        detail=explain(row["check"], row["entries"], row["detail"]),
    )
