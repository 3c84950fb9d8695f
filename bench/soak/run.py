"""One soak: a group of real processes, its clients, its strangers and its strikes."""

import asyncio
import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

from bench.soak.appends import Producer
from bench.soak.judge import (
    Verdict,
    growth_bytes,
    judge_files,
    judge_lives,
    judge_log,
    judge_strangers,
)
from bench.soak.readers import Seen, read_again_and_again, tail
from bench.soak.strikes import Strikes
from bench.soak.watch import Watch
from dledger_client.client import DLedgerClient
from dledger_client.cluster.members import Timing
from tools.groups.mixed_group import MixedGroup
from tools.groups.node_group import NodeGroup
from tools.groups.releases import Release

GROUP: Final = "g"
PATIENCE_S: Final = 60.0
TAILS: Final = 3
SPARED: Final = "n1"
QUIET_S_MAX: Final = 8.0
SCRUB_S_MAX: Final = 30
STRANGERS_END_S: Final = 30.0
"""The time in which strangers that are asked to stop must have said what they counted."""


class Soak:
    """Runs one soak; `verdict` has the violations."""

    def __init__(
        self,
        folder: Path,
        *,
        seconds: float,
        seed: int,
        per_second: int,
        election_timeout_ms: int,
        earlier: Release | None = None,
    ) -> None:
        """Prepare the group.

        `per_second` is the number of appends of each of the two producers. With an `earlier`
        release, the members begin with it and change between it and this one.
        """
        self.verdict = Verdict()
        self.strikes: Strikes
        self._seconds = seconds
        self._seed = seed
        self._per_second = per_second
        settings = {
            "heartbeat_interval_ms": election_timeout_ms // 4,
            "election_timeout_ms": election_timeout_ms,
            "segment_size_bytes": 1 << 20,
            "index_segment_size_bytes": 160 << 10,
            "scrub_interval_s": max(3, min(SCRUB_S_MAX, int(seconds / 20))),
        }
        self._group = (
            NodeGroup(folder, addable=1, **settings)
            if earlier is None
            else MixedGroup(folder, addable=1, earlier=earlier, **settings)
        )

    async def run(self) -> None:
        """Run the soak and judge it; print a summary."""
        began_s = time.monotonic()
        with self._group as group:
            await asyncio.to_thread(group.master)
            watch, seen = Watch(group), Seen(self.verdict.blame)
            async with contextlib.AsyncExitStack() as stack:
                admin = await stack.enter_async_context(self._client())
                strikes = self.strikes = Strikes(
                    group, admin, random.Random(self._seed), self.verdict.blame, spared=SPARED
                )
                plain = Producer(
                    "plain", await stack.enter_async_context(self._client()), self._per_second
                )
                once = Producer(
                    "once",
                    await stack.enter_async_context(self._client(idempotent=True)),
                    self._per_second,
                )
                producers = (plain, once)
                async with self._working(producers, watch, seen):
                    with _strangers(group, self.verdict):
                        quiet_s = min(QUIET_S_MAX, self._seconds / 20)
                        await strikes.run(began_s + self._seconds, quiet_s)
                    await asyncio.to_thread(strikes.wait_until_whole)
                entries = await judge_log(admin, producers, seen, self.verdict)
            await judge_files(group, self.verdict)
            await asyncio.to_thread(strikes.wait_until_whole)
        judge_lives(list(watch.lives.values()), SPARED, self.verdict)
        self._print(time.monotonic() - began_s, entries, producers, strikes, watch, seen)

    def _client(self, *, idempotent: bool = False) -> DLedgerClient:
        timing = Timing(deadline_s=PATIENCE_S, request_timeout_s=2.0)
        addresses = self._group.peers | self._group.addable
        servers = [f"{member}-{address}" for member, address in addresses.items()]
        return DLedgerClient(servers, GROUP, idempotent=idempotent, timing=timing)

    @contextlib.asynccontextmanager
    async def _working(
        self, producers: tuple[Producer, ...], watch: Watch, seen: Seen
    ) -> AsyncIterator[None]:
        """Append, read and sample while the block runs; any failure is a violation."""
        blame = self.verdict.blame
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(self._client()) for _ in range(TAILS + 1)]
            reads: dict[str, Coroutine[Any, Any, None]] = {
                f"tail {number}": tail(f"tail {number}", client, seen, blame)
                for number, client in enumerate(clients[1:])
            }
            reads["the reader"] = read_again_and_again("the reader", clients[0], seen, blame)
            reads["the watch"] = watch.run()
            readers = [self._blamed(name, read) for name, read in reads.items()]
            appends = [self._blamed(f"producer {one.name}", one.run()) for one in producers]
            yield
            for one in producers:
                one.stop()
            await asyncio.gather(*appends)
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    def _blamed(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        async def run() -> None:
            try:
                await work
            except Exception as error:
                self.verdict.blame(f"{name} ended: {error!r}")

        return asyncio.create_task(run())

    def _print(
        self,
        took_s: float,
        entries: int,
        producers: tuple[Producer, ...],
        strikes: Strikes,
        watch: Watch,
        seen: Seen,
    ) -> None:
        lives = list(watch.lives.values())
        print(f"{took_s:.0f} s, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        for one in producers:
            print(
                f"{one.name}: {one.begun:,} appends, {len(one.acknowledged):,} acknowledged, "
                f"{len(one.refused):,} refused, {len(one.unknown):,} unknown"
            )
        print(f"{entries:,} entries in the log; {seen.served:,} bodies were served to readers")
        listed = ", ".join(f"{name} {count}" for name, count in sorted(strikes.counts.items()))
        print(f"strikes: {listed}; they changed the term {strikes.changes_of_term} times")
        turns, long_turns = sum(one.turns for one in lives), sum(one.long_turns for one in lives)
        timers, late = sum(one.timers for one in lives), sum(one.late_timers for one in lives)
        print(
            f"{turns:,} turns of event loops, {long_turns} above 20 ms of the processor, the "
            f"longest {max(one.longest_turn_s for one in lives) * 1000:.0f} ms; {late} of "
            f"{timers:,} timers more than 100 ms late"
        )
        for own in lives:
            if own.member == SPARED:
                print(
                    f"{SPARED} was never killed: {own.memory[0][1] / 2**20:.1f} MiB at the start, "
                    f"{own.memory[-1][1] / 2**20:.1f} at the end, growth after the warm-up "
                    f"{growth_bytes(own) / 2**20:.1f}; most of any member "
                    f"{max(life.peak_bytes for life in lives) / 2**20:.1f}"
                )
                tenth = max(1, len(own.memory) // 10)
                course = ", ".join(f"{size / 2**20:.0f}" for _, size in own.memory[::tenth])
                print(f"its memory in ten steps, in MiB: {course}")
        print(f"violations: {len(self.verdict.violations)}")


@contextlib.contextmanager
def _strangers(group: NodeGroup, verdict: Verdict) -> Iterator[None]:
    """Run strangers against the first voters during the block, and judge what they counted."""
    targets = [
        f"{member}={address}:{group.http_ports[member]}" for member, address in group.peers.items()
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.soak.strangers", *targets], stdout=subprocess.PIPE, text=True
    )
    try:
        yield
        if process.poll() is not None:
            raise RuntimeError(f"the strangers ended with {process.returncode}")
        process.terminate()
        opened, kept = map(int, process.communicate(timeout=STRANGERS_END_S)[0].split())
        judge_strangers(opened, kept, verdict)
    finally:
        process.kill()
        process.wait()
