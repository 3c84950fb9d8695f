"""Appends at a steady rate by one client, and how long each took."""

import asyncio
import os
import struct
import time
from collections.abc import AsyncIterator, Callable
from typing import Final, NamedTuple, Self

from dledger_client.append.outcomes import Acknowledged
from dledger_client.client import DLedgerClient
from tools.groups.node_group import NodeGroup

BODY_BYTES_MIN: Final = struct.calcsize("d")
"""A body begins with the time at which it was handed to the client."""
PACE_S: Final = 0.002
"""Interval at which bodies are handed to the client."""


class Appends(NamedTuple):
    """The appends of one phase."""

    rate: float
    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, latencies_s: list[float], seconds: float) -> Self:
        """Summarize the latencies of a phase of this length."""
        ordered_s = sorted(latencies_s)
        p50_s, p99_s = (ordered_s[int(len(ordered_s) * share)] for share in (0.5, 0.99))
        return cls(len(ordered_s) / seconds, p50_s * 1000, p99_s * 1000)


async def append_for(group: NodeGroup, rate: int, body_bytes: int, seconds: float) -> Appends:
    """Append at this rate for `seconds`; see `append_while`."""
    return await append_while(group, rate, body_bytes, lambda elapsed_s: elapsed_s < seconds)


async def append_while(
    group: NodeGroup, rate: int, body_bytes: int, goes_on: Callable[[float], bool]
) -> Appends:
    """Append at this rate while `goes_on` returns true, given the seconds since the beginning.

    Raises SystemExit if an append is not acknowledged.
    """
    handed_s: list[float] = []
    latencies_s: list[float] = []
    rest = os.urandom(body_bytes - BODY_BYTES_MIN)
    began_s = time.perf_counter()

    async def bodies() -> AsyncIterator[bytes]:
        while goes_on(elapsed_s := time.perf_counter() - began_s):
            while len(handed_s) < elapsed_s * rate:
                handed_s.append(time.perf_counter())
                yield struct.pack("d", handed_s[-1]) + rest
            await asyncio.sleep(PACE_S)

    async with DLedgerClient(servers=group.servers, group="g") as client:
        began_s = time.perf_counter()
        async for outcome in client.append_all(bodies(), in_flight=8192):
            if not isinstance(outcome, Acknowledged):
                raise SystemExit(f"an append was not acknowledged: {outcome}")
            latencies_s.append(time.perf_counter() - handed_s[outcome.number])
        seconds = time.perf_counter() - began_s
    return Appends.of(latencies_s, seconds)
