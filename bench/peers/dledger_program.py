"""The client program of this project's group; see `client.py` for the requests.

    python -m bench.peers.dledger_program n0-127.0.0.1:40911 ...

A group has one log, so each named log is a stretch of it.
"""

import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import uvloop

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from dledger_client.errors import ClientError

PACE_S = 0.005
WAITING_MAX = 20_000
FILL_IN_FLIGHT = 4000


class RequestFailedError(Exception):
    """A request was not carried out; the driver gets the message."""


class Program:
    """Answers requests with one client."""

    def __init__(self, client: DLedgerClient) -> None:
        self._client = client
        self._stretches: dict[str, tuple[int, int]] = {}
        self._pace: Pace | None = None

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out a request; return the answer."""
        match request["do"]:
            case "create":
                await self._client.metadata()
                return {}
            case "append":
                return await self._append(request)
            case "fill":
                return await self._fill(request)
            case "read":
                return await self._read(request)
            case "pace":
                self._pace = Pace(self._client, request["per_second"], request["body_bytes"])
                return {}
            case "acknowledgements" if self._pace:
                return self._pace.take()
            case "rest" if self._pace:
                await self._pace.stop()
                return {}
        raise RequestFailedError(f"unknown request {request}")

    async def _append(self, request: dict[str, Any]) -> dict[str, Any]:
        body = os.urandom(request["body_bytes"])
        begin_s = time.perf_counter() + request["warm_up_s"]
        end_s = begin_s + request["seconds"]
        handed_s: list[float] = []
        latencies_s: list[float] = []
        failed = 0

        def bodies() -> Iterator[bytes]:
            while (now_s := time.perf_counter()) < end_s:
                handed_s.append(now_s)
                yield body

        async for outcome in self._client.append_all(bodies(), in_flight=request["in_flight"]):
            now_s = time.perf_counter()
            if not isinstance(outcome, Acknowledged):
                failed += 1
            elif begin_s <= now_s < end_s:
                latencies_s.append(now_s - handed_s[outcome.number])
        latencies_s.sort()
        return {
            "acknowledged": len(latencies_s),
            "failed": failed,
            "p50_ms": _percentile_ms(latencies_s, 0.50),
            "p99_ms": _percentile_ms(latencies_s, 0.99),
        }

    async def _fill(self, request: dict[str, Any]) -> dict[str, Any]:
        body = os.urandom(request["body_bytes"])
        bodies = [body] * request["entries"]
        first, last = None, -1
        async for outcome in self._client.append_all(bodies, in_flight=FILL_IN_FLIGHT):
            if not isinstance(outcome, Acknowledged):
                raise RequestFailedError(f"an append was not acknowledged: {outcome}")
            first = outcome.index if first is None else min(first, outcome.index)
            last = max(last, outcome.index)
        assert first is not None
        self._stretches[request["log"]] = (first, last)
        return {}

    async def _read(self, request: dict[str, Any]) -> dict[str, Any]:
        first, last = self._stretches[request["log"]]
        body_bytes = request["body_bytes"]
        await self._client.get(first)  # connects
        began_s = time.perf_counter()
        read = self._read_batches if request["way"] == "batches" else self._read_entries
        sizes = await read(first, last)
        took_s = time.perf_counter() - began_s
        sizes.pop(0, None)  # a leader's own entry is empty
        if sizes != {body_bytes: request["entries"]}:
            raise RequestFailedError(f"read bodies of these sizes: {dict(sizes)}")
        return {"seconds": took_s}

    async def _read_batches(self, first: int, last: int) -> Counter[int]:
        sizes: Counter[int] = Counter()
        async with aclosing(self._client.read_batches(first, last)) as batches:
            async for batch in batches:
                sizes.update(map(len, batch.bodies))
        return sizes

    async def _read_entries(self, first: int, last: int) -> Counter[int]:
        sizes: Counter[int] = Counter()
        async with aclosing(self._client.get_range(first, last)) as entries:
            async for entry in entries:
                sizes[len(entry.body)] += 1
        return sizes


class Pace:
    """Starts appends at a steady rate, without waiting for earlier ones."""

    def __init__(self, client: DLedgerClient, per_second: int, body_bytes: int) -> None:
        self._client, self._per_second = client, per_second
        self._body = os.urandom(body_bytes)
        self._acknowledged: list[tuple[int, int]] = []
        self._failed = 0
        self._appends: set[asyncio.Task[None]] = set()
        self._pacer = asyncio.create_task(self._run())

    def take(self) -> dict[str, Any]:
        """Return what was acknowledged since the last call."""
        some, self._acknowledged = self._acknowledged, []
        return {"acknowledgements": some, "failed": self._failed}

    async def stop(self) -> None:
        """Stop starting appends, and wait for those in flight."""
        self._pacer.cancel()
        await asyncio.gather(*self._appends)

    async def _run(self) -> None:
        began_s = time.perf_counter()
        begun = 0
        while True:
            due = int((time.perf_counter() - began_s) * self._per_second)
            for _ in range(min(due - begun, WAITING_MAX - len(self._appends))):
                append = asyncio.create_task(self._append())
                self._appends.add(append)
                append.add_done_callback(self._appends.discard)
            begun = due
            await asyncio.sleep(PACE_S)

    async def _append(self) -> None:
        begun_ns = time.time_ns()
        try:
            await self._client.append(self._body)
        except ClientError:
            self._failed += 1
        else:
            self._acknowledged.append((begun_ns, time.time_ns()))


def _percentile_ms(latencies_s: list[float], share: float) -> float | None:
    return latencies_s[int(len(latencies_s) * share)] * 1000 if latencies_s else None


async def _requests() -> AsyncIterator[dict[str, Any]]:
    while line := await asyncio.to_thread(sys.stdin.readline):
        yield json.loads(line)


async def _serve(servers: list[str]) -> None:
    async with DLedgerClient(servers=servers, group="g") as client:
        program = Program(client)
        async for request in _requests():
            try:
                answer = await program.answer(request)
            except (ClientError, RequestFailedError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1:]))
