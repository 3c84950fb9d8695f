"""The data source in sessions that know nothing of it: no registration, no configuration."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from dledger_logs.histories import history, small_shape
from dledger_logs.layout import manifest
from dledger_logs.serve import served
from dledger_logs.write import write_log

pytestmark = pytest.mark.spark

ENTRIES = history(300)

SCRIPT = """
import json, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").getOrCreate()
frame = spark.read.format("dledger").load(sys.argv[1])
print(json.dumps([row["index"] for row in frame.where("index >= 290").orderBy("index").collect()]))
"""


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = write_log(tmp_path_factory.mktemp("member") / "log", ENTRIES, small_shape())
    with served(log.root, manifest(log, "n0")) as url:
        yield f"n0={url}"


def test_a_new_session_of_a_new_process_reads_at_once(member: str) -> None:
    # Spark starts its workers with the `python3` of the PATH, as in an activated environment.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, member],
        env={**os.environ, "PATH": path}, check=True, capture_output=True, text=True,
    )  # fmt: skip

    assert json.loads(run.stdout) == list(range(290, 300))


@pytest.mark.parametrize("pushes", ["true", "false"])
def test_filters_hold_whether_the_session_pushes_them_or_not(
    plain: SparkSession, member: str, pushes: str
) -> None:
    plain.conf.set("spark.sql.python.filterPushdown.enabled", pushes)

    every = plain.read.format("dledger").options(view="members", taskBytes=4096).load(member)
    frame = every.where("index > 3 and index < 8")

    assert sorted(row["index"] for row in frame.collect()) == [4, 5, 6, 7]
    assert (frame.rdd.getNumPartitions() == 1) is (pushes == "true")


def test_options_select_indexes_without_pushed_filters(plain: SparkSession, member: str) -> None:
    between = plain.read.load(
        member, "dledger", "index long",
        view="members", taskBytes=4096, startingIndex=40, endingIndex=44,
    )  # fmt: skip
    each_seventh = json.dumps([[k, k] for k in range(0, 300, 7)])
    some = plain.read.load(
        member, "dledger", "index long", view="members", taskBytes=4096, ranges=each_seventh
    )

    assert between.rdd.getNumPartitions() <= 2 < some.rdd.getNumPartitions()
    assert sorted(row["index"] for row in between.collect()) == [40, 41, 42, 43, 44]
    assert sorted(row["index"] for row in some.collect()) == list(range(0, 300, 7))


def test_an_unknown_option_is_refused_before_anything_is_read(
    plain: SparkSession, member: str
) -> None:
    with pytest.raises(AnalysisException, match="Did you mean startingIndex"):
        plain.read.format("dledger").option("startIndex", 3).load(member)


def test_a_level_has_its_own_columns_and_refuses_others(plain: SparkSession, member: str) -> None:
    frame = plain.read.format("dledger").option("level", "index").load(member)

    assert frame.columns == ["index", "term", "size", "member"]
    assert [(row["index"], row["term"]) for row in frame.orderBy("index").collect()] == [
        (index, entry.term) for index, entry in enumerate(ENTRIES)
    ]
    with pytest.raises(AnalysisException, match="column body is not read with level=headers"):
        plain.read.load(member, "dledger", "body binary", level="headers").collect()


def test_the_log_is_each_entry_once_with_its_body(plain: SparkSession, member: str) -> None:
    frame = plain.read.format("dledger").option("taskBytes", 4000).load(member)

    rows = frame.orderBy("index").collect()

    assert frame.rdd.getNumPartitions() > 2
    assert [row["index"] for row in rows] == list(range(300))
    assert [bytes(row["body"]) for row in rows] == [entry.body for entry in ENTRIES]
    assert {row["kind"] for row in rows} == {"normal", "noop"}
