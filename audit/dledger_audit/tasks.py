"""Runs tasks in Spark's workers: their rows are sent to the driver, or to Spark SQL.

Starting Spark SQL and running its first query takes more CPU than Spark's own start. So only passes
that group rows use it.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from dledger_audit.progress import Share
from pyspark_dledger.columns import ddl

Task = TypeVar("Task")
Read = Callable[[Task], Iterable[pa.RecordBatch]]


class LostRowsError(Exception):
    """Spark has not returned the rows of all tasks."""


def share_of(context: SparkContext) -> Share:
    """Return a function that tells which share of the tasks of Spark's present jobs is done."""

    def share() -> float | None:
        try:
            tracker = context.statusTracker()
            jobs = [tracker.getJobInfo(each) for each in tracker.getActiveJobsIds()]
            numbers = [number for job in jobs if job is not None for number in job.stageIds]
            stages = [tracker.getStageInfo(number) for number in numbers]
        except (OSError, Py4JError):  # the JVM has ended, of which the work itself tells
            return None
        tasks = sum(each.numTasks for each in stages if each is not None)
        done = sum(each.numCompletedTasks for each in stages if each is not None)
        return min(1.0, done / tasks) if tasks else None

    return share


def rows_of(
    context: SparkContext, tasks: Sequence[Task], read: Read[Task], schema: pa.Schema
) -> pa.Table:
    """Run each task in a worker, and return the rows of all, in the order of the tasks.

    A worker has the rows of a whole task in memory. Raises LostRowsError if those of a task are
    missing: PySpark takes the end of its connection to the JVM for the end of the rows.
    """

    def written(pickled: bytes) -> bytes:
        rows = pa.BufferOutputStream()
        with pa.ipc.new_stream(rows, schema) as stream:
            for batch in read(pickle.loads(pickled)):  # noqa: S301 - our own
                stream.write_batch(batch)
        written_bytes: bytes = rows.getvalue().to_pybytes()
        return written_bytes

    # Each worker gets its own tasks only; all tasks of a large group are megabytes.
    pickled = [pickle.dumps(task) for task in tasks]
    streams = context.parallelize(pickled, max(1, len(tasks))).map(written).collect()
    if len(streams) != len(tasks):
        raise LostRowsError(
            f"Spark returned the rows of {len(streams)} of {len(tasks)} tasks. Its JVM has "
            "probably ended, for example for want of memory. Nothing follows from these rows; run "
            "this again"
        )
    batches = [batch for stream in streams for batch in pa.ipc.open_stream(stream)]
    return pa.Table.from_batches(batches, schema)


def frame_of(
    context: SparkContext, tasks: Sequence[Task], read: Read[Task], schema: pa.Schema
) -> DataFrame:
    """Return the rows of all tasks for Spark SQL, which reads each task in a worker."""

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for pickled in batch.column(0).to_pylist():
                yield from read(pickle.loads(pickled))  # noqa: S301 - our own

    # Each worker gets its own tasks only, as above.
    each = [(pickle.dumps(task),) for task in tasks]
    spread = context.parallelize(each, max(1, len(tasks)))
    given = SparkSession(context).createDataFrame(spread, "task binary", verifySchema=False)
    return given.mapInArrow(rows, ddl(schema))
