"""Runs tasks in Spark's workers: their rows are sent to the driver, or to Spark SQL.

Starting Spark SQL and running its first query takes more CPU than Spark's own start. So only passes
that group rows use it.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from pyspark_dledger.columns import ddl

Task = TypeVar("Task")
Read = Callable[[Task], Iterable[pa.RecordBatch]]


class LostRowsError(Exception):
    """Spark has not returned the rows of all tasks."""


class TasksDone:
    """The number of tasks that Spark's workers have done, which they report with their rows.

    Spark's own tracker has this number, too. But Ctrl-C ends an audit in order only if no other
    thread has a request at the JVM meanwhile (`Interrupts.shield`).
    """

    def __init__(self, context: SparkContext, tasks: int) -> None:
        self._done = context.accumulator(0)
        self._tasks = tasks

    def counting(self, read: Read[Task]) -> Read[Task]:
        """Return a function for the workers that runs a task by `read`, and counts it."""
        done = self._done

        def counted(task: Task) -> Iterator[pa.RecordBatch]:
            yield from read(task)
            done.add(1)

        return counted

    def share(self) -> float | None:
        """Return the share of the tasks that is done; a task that was repeated may count twice."""
        return min(1.0, self._done.value / self._tasks) if self._tasks else None


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
