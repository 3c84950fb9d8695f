"""One audit: from the members' manifests to findings and totals."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from dledger_audit.capture import Capture
from dledger_audit.checks.agreement import Voters, agreement, disputed
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
    """Totals of the entries that were read from one member."""

    first_index: int
    last_index: int
    entries: int
    record_bytes: int
    damaged: int
    """Entries that are present but differ from what was written."""
    uncovered: int
    """Entries not covered by a checksum."""


NOTHING: Final = MemberTotals(
    first_index=-1, last_index=-1, entries=0, record_bytes=0, damaged=0, uncovered=0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """The result of an audit, before it is rendered as a report."""

    findings: tuple[Finding, ...]
    totals: Mapping[str, MemberTotals]
    """Totals by member id, for every member that answered."""


def audit(spark: SparkSession, capture: Capture) -> AuditResult:
    """Read the logs once, and read the differing chunks a second time."""
    entries = _entries(spark, capture)
    voters = _voters(capture)
    # The checkpoint keeps the checks from reading the logs again; a single partition keeps them
    # from shuffling.
    digests = chunks(entries, voters.last_index).coalesce(1).localCheckpoint()
    rows = union(
        integrity(digests),
        continuity(digests, _files(spark, capture), _members(spark, capture)),
        coverage(digests),
    ).collect()
    rows += _disagreements(entries, digests, voters)
    counted = {row["member"]: _totals(row) for row in totals(digests).collect()}
    return AuditResult(
        findings=(*capture.findings, *(_finding(row) for row in rows)),
        totals={member: counted.get(member, NOTHING) for member in capture.manifests},
    )


def _entries(spark: SparkSession, capture: Capture) -> DataFrame:
    """Read the columns that the checks need, up to the manifests' committed indexes."""
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


def _voters(capture: Capture) -> Voters:
    begins = [manifest.status.ledger_begin_index for manifest in capture.manifests.values()]
    return Voters(
        count=capture.voters_count,
        unread_count=capture.voters_count - len(capture.manifests),
        last_index=capture.agreed_index,
        complete_from=max(begins),
    )


def _disagreements(entries: DataFrame, digests: DataFrame, voters: Voters) -> list[Row]:
    """Compare chunks; read the range from the first differing chunk to the last one again."""
    differing = disputed(digests, voters)
    first, last = differing.agg(F.min("chunk"), F.max("chunk")).collect()[0]
    if first is None:
        return []
    between = entries.where(
        (F.col("index") >= first << CHUNK_BITS) & (F.col("index") < (last + 1) << CHUNK_BITS)
    )
    return agreement(between, differing, voters).collect()


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
