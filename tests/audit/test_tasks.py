"""Tasks in Spark's workers, and what an audit needs Spark SQL for."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from dledger_audit.tasks import Read, frame_of, rows_of
from dledger_compaction.model import key_history
from dledger_logs.histories import small_shape
from dledger_logs.layout import manifest
from dledger_logs.serve import served
from dledger_logs.write import write_log

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("task", pa.string()), ("number", pa.int64())])
AUDITED = """
import sys
from dledger_audit.audit import audit
from dledger_audit.capture import ask_again, capture
from dledger_audit.passes import SparkPasses
from dledger_audit.session import session

captured = capture("g", dict(each.split("=", 1) for each in sys.argv[1:]))
with session("local[1]") as context:
    audited = audit(SparkPasses(context, captured.urls), captured, lambda: ask_again(captured))
    sessions = context._jvm.org.apache.spark.sql.classic.SparkSession
    print(len(audited.totals), len(audited.findings), sessions.getDefaultSession().isDefined())
"""

CUT = """
import os, signal
from contextlib import contextmanager
import pyarrow as pa
from pyspark.core import rdd
from dledger_audit.session import session
from dledger_audit.tasks import LostRowsError, rows_of

load_from_socket = rdd._load_from_socket


@contextmanager
def cut(*arguments):
    with load_from_socket(*arguments) as items:
        def cut_items():
            yield next(items)
            os.kill(context._gateway.proc.pid, signal.SIGKILL)
            context._gateway.proc.wait()
            yield from items
        yield cut_items()


rdd._load_from_socket = cut
schema = pa.schema([("body", pa.binary())])
batch = pa.RecordBatch.from_pydict({"body": [bytes(4 << 20)]}, schema)
with session("local[1]") as context:
    try:
        rows_of(context, range(8), lambda _: [batch], schema)
    except LostRowsError as error:
        print(error)
"""


@pytest.fixture
def counted() -> Read[tuple[str, int]]:
    """Return what yields the numbers below a count, in batches of two. Workers cannot import it."""

    def read(task: tuple[str, int]) -> Iterator[pa.RecordBatch]:
        name, count = task
        for first in range(0, count, 2):
            numbers = list(range(first, min(count, first + 2)))
            columns = {"task": [name] * len(numbers), "number": numbers}
            yield pa.RecordBatch.from_pydict(columns, SCHEMA)

    return read


def test_rows_come_in_the_order_of_the_tasks(
    spark: SparkSession, counted: Read[tuple[str, int]]
) -> None:
    tasks = [("a", 5), ("b", 0), ("c", 2)]

    rows = rows_of(spark.sparkContext, tasks, counted, SCHEMA)

    assert rows.schema == SCHEMA
    assert rows.to_pydict() == {
        "task": ["a", "a", "a", "a", "a", "c", "c"],
        "number": [0, 1, 2, 3, 4, 0, 1],
    }
    assert rows_of(spark.sparkContext, [], counted, SCHEMA).num_rows == 0


def test_no_worker_gets_the_tasks_of_others(
    spark: SparkSession, counted: Read[tuple[str, int]]
) -> None:
    """The program of a worker is the same for all tasks, so it must not contain them."""
    sizes = {}
    for length in (1, 100_000):
        frame = frame_of(spark.sparkContext, [("a" * length, 2), ("b", 3)], counted, SCHEMA)
        program = frame._jdf.queryExecution().analyzed().functionExpr().func().command()
        sizes[length] = program.size()
        assert frame.count() == 5

    assert sizes[1] == sizes[100_000]


def test_spark_sql_gets_the_same_rows(spark: SparkSession, counted: Read[tuple[str, int]]) -> None:
    frame = frame_of(spark.sparkContext, [("a", 5), ("b", 0), ("c", 2)], counted, SCHEMA)

    assert frame.groupBy("task").count().sort("task").toArrow().to_pydict() == {
        "task": ["a", "c"],
        "count": [5, 2],
    }


def test_rows_of_another_schema_are_refused(spark: SparkSession) -> None:
    def other(number: int) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"number": [number], "task": ["a"]})

    with pytest.raises(PythonException, match="schema"):
        rows_of(spark.sparkContext, [1], other, SCHEMA)


def test_rows_that_are_lost_with_the_jvm_are_missed() -> None:
    """Else an audit would take them for entries that the members lack."""
    ended = subprocess.run(
        [sys.executable, "-c", CUT], capture_output=True, text=True, check=False, timeout=200
    )

    assert "of 8 tasks. Its JVM has probably ended" in ended.stdout, ended.stderr


def test_an_audit_of_logs_that_agree_starts_no_spark_sql(tmp_path: Path) -> None:
    members = ("n0", "n1", "n2")
    with ExitStack() as stack:
        urls = []
        for member in members:
            log = write_log(tmp_path / member, key_history(300, 5), small_shape(1 << 12))
            url = stack.enter_context(served(log.root, manifest(log, member, peers=members)))
            urls.append(f"{member}={url}")
        ended = subprocess.run(
            [sys.executable, "-c", AUDITED, *urls],
            capture_output=True, text=True, check=False, timeout=200,
        )  # fmt: skip

    assert ended.stdout.split() == ["3", "0", "False"], ended.stderr
