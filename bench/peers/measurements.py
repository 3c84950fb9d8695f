"""The measurements of one peer: idle, failover, appends and reads, in this order."""

import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.append import memory_mib, processor_s
from bench.peers.client import Client, ClientError
from bench.peers.gaps import Acknowledgements, first_new_ms, is_over, longest_gap_ms
from bench.peers.peer import APPENDS_LOG, Description, Peer
from bench.peers.processor import ProcessorClock
from tools.groups.processes import MemberProcesses
from tools.groups.waiting import wait_for

LOAD_WARM_UP_S: Final = 1.0
"""Time before each load of appends counts."""
WARM_UP_IN_FLIGHT: Final = (1000, 64, 1)
PER_SECOND: Final = 200
"""Appends per second during failover."""
STEADY_APPENDS: Final = 200
GAP_TIMEOUT_S: Final = 90.0
FILL_TIMEOUT_S: Final = 300.0
READ_TIMEOUT_S: Final = 150.0


@dataclass(frozen=True, slots=True)
class Log:
    """A log to read."""

    name: str
    entries: int
    body_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured; the defaults are a full run."""

    idle_s: float = 30.0
    settle_s: float = 5.0
    """Time between the start of a group and the measurement of its idle cost."""
    kills: int = 3
    body_bytes: int = 1024
    in_flight: tuple[int, ...] = (1, 64, 1000)
    append_s: float = 5.0
    logs: tuple[Log, ...] = (Log("k1", 500_000, 1024), Log("b8", 1_000_000, 8))
    passes: int = 3
    """How many times each log is read in each way."""
    warm_up_share: float = 1.0
    """Share of each peer's warm-up that is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """The cost of members without load."""

    processor_percent: float
    """Share of one processor that all members together use."""
    own_mib: int
    """Resident memory of all members, without mapped files."""
    mapped_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """The effect of one SIGKILL of the leader."""

    gap_ms: float
    """Longest pause between two acknowledgements."""
    first_new_ms: float
    """From the kill to the first acknowledgement of an append that began after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Appends:
    """The figures for a number of appends kept in flight."""

    in_flight: int
    per_second: float
    p50_ms: float | None
    p99_ms: float | None
    failed: int
    members_us: float
    """Processor time of all members for one append."""
    others_cores: float
    """Processors that other work of the machine occupied; the figures mean little above 0.3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """One reader, from the start of a log to its end; medians of the passes."""

    log: str
    way: str
    per_second: float
    each_per_second: list[float]
    members_us: float
    client_us: float
    """Processor time for one entry."""
    others_cores: float


@dataclass(slots=True, kw_only=True)
class Figures:
    """Everything that was measured of a peer; what follows a failure is missing."""

    description: Description
    idle: Idle | None = None
    failover: list[Failover] = field(default_factory=list)
    failed_in_failover: int = 0
    appends: list[Appends] = field(default_factory=list)
    reads: list[Reads] = field(default_factory=list)
    failure: str | None = None


def measure(peer: Peer, plan: Plan, folder: Path) -> Figures:
    """Start a group, measure it, and end its processes; a failure becomes part of the figures."""
    figures = Figures(description=peer.description)
    try:
        with peer.group_in(folder) as group, peer.client_of(group) as client:
            client.ask("create", log=APPENDS_LOG)
            peer.leader(group, client)
            figures.idle = measure_idle(group, plan)
            measure_failover(peer, group, client, plan, figures)
            measure_appends(peer, group, client, plan, figures)
            measure_reads(peer, group, client, plan, figures)
    except (ClientError, AssertionError, OSError) as error:
        figures.failure = f"{type(error).__name__}: {error}"
    return figures


def measure_idle(group: MemberProcesses, plan: Plan) -> Idle:
    """Measure members without load."""
    members = _process_ids(group)
    time.sleep(plan.settle_s)
    before_s = sum(map(processor_s, members))
    time.sleep(plan.idle_s)
    used_s = sum(map(processor_s, members)) - before_s
    memory = [memory_mib(member) for member in members]
    return Idle(
        processor_percent=used_s / plan.idle_s * 100,
        own_mib=sum(own for own, _ in memory),
        mapped_mib=sum(mapped for _, mapped in memory),
    )


def measure_failover(
    peer: Peer, group: MemberProcesses, client: Client, plan: Plan, figures: Figures
) -> None:
    """Kill the leader several times while a client appends at a steady rate."""
    if not plan.kills:
        return
    client.ask("pace", log=APPENDS_LOG, per_second=PER_SECOND, body_bytes=plan.body_bytes)
    for _ in range(plan.kills):
        leader = peer.leader(group, client)
        acknowledged = _Acknowledged(client)
        wait_for(lambda: acknowledged.count() >= STEADY_APPENDS, "steady appends", poll_s=0.1)  # noqa: B023
        killed_ns = time.time_ns()
        group.kill(leader)
        wait_for(
            lambda: is_over(acknowledged.all(), killed_ns),  # noqa: B023
            "appends after the kill",
            GAP_TIMEOUT_S,
            poll_s=0.1,
        )
        figures.failed_in_failover = acknowledged.failed
        group.start(leader)
        figures.failover.append(
            Failover(
                gap_ms=longest_gap_ms(acknowledged.all(), killed_ns),
                first_new_ms=first_new_ms(acknowledged.all(), killed_ns),
            )
        )
    client.ask("rest")
    peer.leader(group, client)


class _Acknowledged:
    """The acknowledgements since its creation."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._all: list[tuple[int, int]] = []
        self.failed = 0
        client.ask("acknowledgements")

    def all(self) -> Acknowledgements:
        """Ask for the latest acknowledgements; return all."""
        answer = self._client.ask("acknowledgements")
        self._all += [(begun_ns, end_ns) for begun_ns, end_ns in answer["acknowledgements"]]
        self.failed = answer["failed"]
        return self._all

    def count(self) -> int:
        """Return how many there are."""
        return len(self.all())


def measure_appends(
    peer: Peer, group: MemberProcesses, client: Client, plan: Plan, figures: Figures
) -> None:
    """Warm up, then measure each number of appends in flight."""
    share_s = peer.warm_up_s * plan.warm_up_share / 2 / len(WARM_UP_IN_FLIGHT)
    for in_flight in WARM_UP_IN_FLIGHT:
        _append(client, in_flight, plan.body_bytes, warm_up_s=0, seconds=share_s)
    for in_flight in plan.in_flight:
        clock = ProcessorClock(_process_ids(group), client.process_id)
        answer = _append(
            client, in_flight, plan.body_bytes, warm_up_s=LOAD_WARM_UP_S, seconds=plan.append_s
        )
        used = clock.used()
        acknowledged = answer["acknowledged"]
        of_warm_up = 1 + LOAD_WARM_UP_S / plan.append_s
        figures.appends.append(
            Appends(
                in_flight=in_flight,
                per_second=acknowledged / plan.append_s,
                p50_ms=answer["p50_ms"],
                p99_ms=answer["p99_ms"],
                failed=answer["failed"],
                members_us=used.members_s / max(1, acknowledged * of_warm_up) * 1e6,
                others_cores=used.others_cores,
            )
        )


def _append(
    client: Client, in_flight: int, body_bytes: int, *, warm_up_s: float, seconds: float
) -> dict[str, Any]:
    return client.ask(
        "append",
        timeout_s=warm_up_s + seconds + 60,
        log=APPENDS_LOG,
        in_flight=in_flight,
        body_bytes=body_bytes,
        warm_up_s=warm_up_s,
        seconds=seconds,
    )


def measure_reads(
    peer: Peer, group: MemberProcesses, client: Client, plan: Plan, figures: Figures
) -> None:
    """Fill the logs, warm up by reading them, and read each in each way."""
    for log in plan.logs:
        client.ask("create", log=log.name)
        client.ask("fill", timeout_s=FILL_TIMEOUT_S, log=log.name, **_shape(log))
    os.sync()
    until_s = time.monotonic() + peer.warm_up_s * plan.warm_up_share / 2
    for log, way in _endlessly(plan, peer):
        _read(client, log, way)
        if time.monotonic() > until_s:
            break
    for log in plan.logs:
        for way in peer.ways_to_read:
            figures.reads.append(_reads(group, client, log, way, plan.passes))


def _endlessly(plan: Plan, peer: Peer) -> Iterator[tuple[Log, str]]:
    while plan.logs:
        yield from ((log, way) for log in plan.logs for way in peer.ways_to_read)


def _reads(group: MemberProcesses, client: Client, log: Log, way: str, passes: int) -> Reads:
    rates, used = [], []
    for _ in range(passes):
        clock = ProcessorClock(_process_ids(group), client.process_id)
        rates.append(log.entries / _read(client, log, way))
        used.append(clock.used())
    entry_us = 1e6 / log.entries
    return Reads(
        log=f"{log.entries:,} x {log.body_bytes} B",
        way=way,
        per_second=statistics.median(rates),
        each_per_second=rates,
        members_us=statistics.median(each.members_s for each in used) * entry_us,
        client_us=statistics.median(each.client_s for each in used) * entry_us,
        others_cores=max(each.others_cores for each in used),
    )


def _read(client: Client, log: Log, way: str) -> float:
    answer = client.ask("read", timeout_s=READ_TIMEOUT_S, log=log.name, way=way, **_shape(log))
    return float(answer["seconds"])


def _shape(log: Log) -> dict[str, int]:
    return {"entries": log.entries, "body_bytes": log.body_bytes}


def _process_ids(group: MemberProcesses) -> list[int]:
    return [group.process_id(member) for member in group.running()]
