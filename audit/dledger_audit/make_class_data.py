"""Write the class data of Spark's JVM: python -m dledger_audit.make_class_data FILE.

Spark runs once, and does what it does in an audit: tasks, and queries that group rows. When its JVM
ends, it writes the classes that it has loaded.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from dledger_audit.class_data import ClassData
from dledger_audit.session import session

if TYPE_CHECKING:
    import pyarrow as pa

WRITE_S_MAX: Final = 180.0


def main(file: Path) -> None:
    """Write the file. Raises RuntimeError if Spark does not work, or Java does not write it."""
    # An image builder may be unable to resolve its own host name.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    file = file.absolute()
    file.parent.mkdir(parents=True, exist_ok=True)
    # Java would end with a signal if it read a partial file.
    unfinished = file.with_name(f"{file.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    with session("local[1]", class_data=ClassData(unfinished, is_written=True)) as context:
        use(context)
        gateway = context._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    if gateway.proc.wait(WRITE_S_MAX) != 0 or not unfinished.exists():
        raise RuntimeError(f"Java has not written {unfinished}")
    unfinished.replace(file)


def use(context: SparkContext) -> None:
    """Let Spark load its classes."""

    def doubled(numbers: Iterable[int]) -> Iterator[bytes]:
        yield from (bytes(2 * number) for number in numbers)

    def same(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        yield from batches

    def first(rows: "pa.Table") -> "pa.Table":
        return rows.slice(0, 1)

    found = context.parallelize(range(4), 2).mapPartitions(doubled).collect()
    rows = SparkSession(context).range(0, 64, 1, 2).mapInArrow(same, "id long")
    keyed = rows.withColumn("key", sql.col("id") % 4).withColumn("value", sql.lit(b"value"))
    last = keyed.groupBy("key").agg(sql.max("id").alias("last"), sql.max_by("value", "id"))
    latest = last.where("last is not null").limit(10).toArrow()
    groups = keyed.groupBy("key").applyInArrow(first, keyed.schema).toArrow()
    if (sum(map(len, found)), len(latest), len(groups)) != (12, 4, 4):
        raise RuntimeError("Spark does not compute what it should")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
