"""Continuity between segments: every way in which they can fail to connect."""

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dledger_audit.checks.continuity import FILES, MEMBERS, continuity

pytestmark = pytest.mark.spark

SIZE = 1000
CHUNK = pa.schema(
    {
        "member": pa.string(),
        "segment": pa.int64(),
        "flags": pa.int32(),
        "entries": pa.int64(),
        "first_index": pa.int64(),
        "last_index": pa.int64(),
        "first_term": pa.int64(),
        "last_term": pa.int64(),
    }.items()
)

# For each member: begin index, committed index, and segments (number, first, last, two terms).
SAYS = {
    "whole": (0, 299, [(0, 0, 99, 1, 1), (1, 100, 199, 1, 2), (2, 200, 299, 2, 2)]),
    "gap": (0, 299, [(0, 0, 99, 1, 1), (2, 200, 299, 2, 2)]),
    "jump": (0, 299, [(0, 0, 99, 1, 1), (1, 120, 299, 1, 2)]),
    "repeat": (0, 299, [(0, 0, 99, 1, 1), (1, 90, 299, 1, 2)]),
    "back": (0, 299, [(0, 0, 99, 1, 3), (1, 100, 299, 2, 3)]),
    "headless": (0, 299, [(1, 100, 199, 1, 2), (2, 200, 299, 2, 2)]),
    "late": (100, 299, [(1, 100, 199, 1, 2), (2, 200, 299, 2, 2)]),
    "short": (0, 299, [(0, 0, 99, 1, 1), (1, 100, 249, 1, 2)]),
    "bare": (0, 299, []),
    "empty": (-1, -1, []),
}
EXPECTED = {
    ("gap", "missing_segment", "1000", 100, 199),
    ("jump", "missing_entries", "1000", 100, 119),
    ("repeat", "repeated_entries", "1000", 90, 99),
    ("back", "term_back", "1000", 100, 100),
    ("headless", "missing_entries", "1000", 0, 99),
    ("short", "missing_entries", "1000", 250, 299),
    ("bare", "missing_entries", "", 0, 299),
}


def test_exactly_the_broken_connections_between_segments_are_found(spark: SparkSession) -> None:
    chunks: list[dict[str, Any]] = [
        {
            "member": member,
            "segment": number * SIZE,
            "flags": 0,
            "entries": last - first + 1,
            "first_index": first,
            "last_index": last,
            "first_term": first_term,
            "last_term": last_term,
        }
        for member, (_, _, segments) in SAYS.items()
        for number, first, last, first_term, last_term in segments
    ]
    files = [
        {"member": chunk["member"], "segment": chunk["segment"], "size_bytes": SIZE}
        for chunk in chunks
    ]
    members = [
        {"member": member, "begin_index": begin, "committed_index": committed}
        for member, (begin, committed, _) in SAYS.items()
    ]

    found = continuity(
        *(
            spark.createDataFrame(pa.Table.from_pylist(rows, schema=schema))
            for rows, schema in ((chunks, CHUNK), (files, FILES), (members, MEMBERS))
        )
    ).collect()

    assert {
        (f["member"], f["check"], f["segment"].lstrip("0"), f["first_index"], f["last_index"])
        for f in found
    } == EXPECTED
    assert {f["severity"] for f in found} == {"critical"}
    assert all(f["entries"] == f["last_index"] - f["first_index"] + 1 for f in found)
