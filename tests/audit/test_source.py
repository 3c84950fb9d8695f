"""The data source `dledger` by itself, without an audit."""

from collections.abc import Iterator

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from dledger_logs import damage
from dledger_logs.histories import history, small_shape
from dledger_logs.layout import Log, manifest
from dledger_logs.serve import served
from dledger_logs.write import write_log
from pyspark_dledger.layout import Flag

pytestmark = pytest.mark.spark

ENTRIES = history(300)
LOST = (30, 34)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Write a log that lost some entries without a trace, not even in the index files."""
    log = write_log(tmp_path_factory.mktemp("member") / "log", ENTRIES, small_shape())
    damage.remove_index(log)
    damage.zero(log, *LOST)
    return log


@pytest.fixture(scope="module")
def members(log: Log) -> Iterator[str]:
    """Serve the same log as two members."""
    with (
        served(log.root, manifest(log, "n0")) as n0,
        served(log.root, manifest(log, "n1")) as n1,
    ):
        yield f"n0={n0},n1={n1}"


def test_a_row_is_an_entry_or_an_absent_one(spark: SparkSession, members: str, log: Log) -> None:
    frame = spark.read.format("dledger").option("view", "members").load(members)

    rows = frame.where("member = 'n1'").orderBy("index").collect()

    assert [row["index"] for row in rows] == list(range(300))
    lost = range(LOST[0], LOST[1] + 1)
    assert [row["index"] for row in rows if row["at"] is None] == list(lost)
    assert {row["flags"] for row in rows if row["index"] in lost} == {Flag.LOST_ENTRY}
    there = [row for row in rows if row["index"] not in lost]
    assert [row["at"] for row in there] == [log.place(row["index"]).pos for row in there]
    assert [row["size"] for row in there] == [log.place(row["index"]).size for row in there]
    assert [row["term"] for row in there] == [ENTRIES[row["index"]].term for row in there]
    assert all(row["crc"] == row["body_crc"] for row in there)


def test_bodies_are_read_on_request_and_filters_skip_segments(
    spark: SparkSession, members: str, log: Log
) -> None:
    last = log.places_in(log.segments[-1])
    frame = (
        spark.read.format("dledger")
        .option("view", "members")
        .option("members", members)
        .schema("index long, member string, body binary")
        .load()
        .where(f"index >= {last[0].index} and member in ('n0', 'n9')")
    )

    assert frame.rdd.getNumPartitions() == 1
    bodies = {row["index"]: bytes(row["body"]) for row in frame.collect()}
    assert bodies == {place.index: ENTRIES[place.index].body for place in last}
    assert frame.where("index < 0").count() == 0


@pytest.mark.parametrize("schema", ["index long, key string", "index string"])
def test_an_unknown_column_or_type_is_rejected(
    spark: SparkSession, members: str, schema: str
) -> None:
    with pytest.raises(AnalysisException, match="column"):
        spark.read.format("dledger").option("view", "members").schema(schema).load(
            members
        ).collect()
