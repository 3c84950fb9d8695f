"""Streaming queries of Spark over real members: every entry once, whatever dies meanwhile."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from dledger_client.client import DLedgerClient
from tools.groups.node_group import NodeGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.spark


def places(group: NodeGroup) -> str:
    return ",".join(
        f"{member}=http://{group.host(member)}:{group.http_ports[member]}" for member in group.peers
    )


async def append(group: NodeGroup, bodies: list[bytes]) -> None:
    async with DLedgerClient(group.servers, "g") as client:
        await client.append_batch(bodies, deadline_s=60)


class Writer:
    """Appends small batches, as many as it is told."""

    def __init__(self, group: NodeGroup) -> None:
        self._group = group
        self._told = threading.Semaphore(0)
        self._is_over = False
        self._pool = ThreadPoolExecutor(1)
        self._writing = self._pool.submit(self._run)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._told.release()
        self._writing.result(timeout=120)
        self._pool.shutdown()

    def tell(self, batches: int) -> None:
        self._told.release(batches)

    def _run(self) -> None:
        while self._told.acquire() and not self._is_over:
            asyncio.run(append(self._group, [os.urandom(20) for _ in range(40)]))


class Sink:
    """A streaming query that writes files, with a checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path, path: str) -> None:
        self._spark, self._folder, self._path = spark, folder, path

    def start(self, *, available_now: bool = False) -> StreamingQuery:
        entries = (
            self._spark.readStream.format("dledger")
            .option("maxEntriesPerBatch", 300)
            .load(self._path)
            .select("index", "body")
        )
        writer = entries.writeStream.option("checkpointLocation", str(self._folder / "checkpoint"))
        if available_now:
            writer = writer.trigger(availableNow=True)
        return writer.start(str(self._folder / "rows"), "parquet")

    def rows(self) -> list[tuple[int, bytes]]:
        read = self._spark.read.parquet(str(self._folder / "rows"))
        return sorted((row["index"], bytes(row["body"])) for row in read.collect())


def has_run(query: StreamingQuery, batches: int) -> bool:
    """Return whether a query has ended so many batches; raise its error if it failed."""
    if (error := query.exception()) is not None:
        raise error
    return sum(progress.numInputRows > 0 for progress in query.recentProgress) >= batches


def test_every_entry_is_read_once_while_a_leader_dies_and_the_query_is_started_again(
    plain: SparkSession, tmp_path: Path
) -> None:
    with NodeGroup(tmp_path, segment_size_bytes=1 << 16, index_segment_size_bytes=1 << 12) as group:
        sink = Sink(plain, tmp_path / "query", places(group))
        asyncio.run(append(group, [b"first"] * 300))
        with Writer(group) as writer:
            query = sink.start()
            wait_for(lambda: has_run(query, 1), "the query has run a batch")
            writer.tell(25)
            master = group.master()
            group.kill(master)
            wait_for(lambda: has_run(query, 3), "it has run two more without the leader")
            query.stop()
            group.start(master)
            group.wait_until_up(master)
            query = sink.start()
            writer.tell(10)
            wait_for(lambda: has_run(query, 1), "the query goes on")
            query.stop()
        last = sink.start(available_now=True)
        assert last.awaitTermination(120)
        log = plain.read.load(places(group), "dledger", "index long, body binary").collect()
        largest = max(progress.numInputRows for progress in last.recentProgress)

    assert sink.rows() == sorted((row["index"], bytes(row["body"])) for row in log)
    assert len(log) > 600
    assert largest <= 300
