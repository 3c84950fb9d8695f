"""Runs tasks in Spark's workers: their rows come to the driver, or go on in Spark SQL.

The start of Spark SQL and its first query takes more CPU than Spark's own start. So only what
groups rows uses it.
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


def rows_of(
    context: SparkContext, tasks: Sequence[Task], read: Read[Task], schema: pa.Schema
) -> pa.Table:
    """Run each task in a worker, and return the rows of all, in the order of the tasks.

    A worker has the rows of a whole task in memory.
    """
    pickled = [pickle.dumps(task) for task in tasks]

    def written(numbers: Iterable[int]) -> Iterator[bytes]:
        for number in numbers:
            rows = pa.BufferOutputStream()
            with pa.ipc.new_stream(rows, schema) as stream:
                for batch in read(pickle.loads(pickled[number])):  # noqa: S301 - our own
                    stream.write_batch(batch)
            yield rows.getvalue().to_pybytes()

    numbers = context.parallelize(range(len(tasks)), max(1, len(tasks)))
    batches = [
        batch
        for stream in numbers.mapPartitions(written).collect()
        for batch in pa.ipc.open_stream(stream)
    ]
    return pa.Table.from_batches(batches, schema)


def frame_of(
    context: SparkContext, tasks: Sequence[Task], read: Read[Task], schema: pa.Schema
) -> DataFrame:
    """Return the rows of all tasks for Spark SQL, which reads each task in a worker."""
    pickled = [pickle.dumps(task) for task in tasks]

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read(pickle.loads(pickled[number]))  # noqa: S301 - our own

    numbers = SparkSession(context).range(0, len(tasks), 1, max(1, len(tasks)))
    return numbers.mapInArrow(rows, ddl(schema))
