"""The cost of readers for appends: many tailing readers, and one that reads from the start.

    python -m bench.tails                      100 tailing readers, 10,000 appends/s
    python -m bench.tails --readers 1 --from-start 0 --rate 100 --seconds 20

The appends run alone in the first phase, beside processes that use the processor and read nothing
in the second, and beside the readers in the third. Members, writer and readers share the machine's
cores. So the readers, and the processes of the second phase, run at the lowest priority unless
`--nice` says otherwise. With `--cgroup` they enter a control group, for example one with
`cpu.idle`. With `--bare` the readers are those of `bare_readers.py`, which cost little themselves.
The difference between the second and the third phase is what reading costs. The ratios compare the
appends with those of the first phase. The delivery is the time from handing a body to the writer's
client until a tail has it. A reader from the start begins again when it has reached the end. The
benchmark fails if a turn of a member's event loop took too much of the processor.
"""

import argparse
import contextlib
import multiprocessing
import os
import tempfile
import time
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Final

import uvloop

from bench.append import processor_s
from bench.measured_group import measured_group
from bench.steady_appends import BODY_BYTES_MIN, Appends, append_for
from bench.tail_readers import (
    Load,
    Priority,
    Reading,
    Source,
    read_until,
    use_processor,
)
from bench.turns import LongTurns, turn_s_max
from tools.groups.node_group import NodeGroup
from tools.groups.turns import TurnWatch

PROCESSES: Final = 2
"""Processes that the tailing readers share."""
HEADING: Final = (
    "phase          appends/s   p50 ms   p99 ms  ratios      leader's processor   "
    "entries/s of tails   from the start"
)


class Readers:
    """The processes of all readers."""

    def __init__(
        self, context: SpawnContext, group: NodeGroup, arguments: argparse.Namespace, stop: Event
    ) -> None:
        """Start the processes, and return once all of them read."""
        processes = min(PROCESSES, arguments.readers)
        tails = [arguments.readers // processes] * processes if processes else []
        loads = [Load(count, 0) for count in tails]
        loads += [Load(0, 1) for _ in range(arguments.from_start)]
        total_rate = arguments.readers * arguments.rate
        leader = group.master()
        source = Source(
            list(group.servers),
            leader,
            group.peers[leader],
            arguments.body_bytes,
            group.status(leader).committed_index,
            arguments.bare,
        )
        self.readings = [
            Reading.of(context, stop, load, priority(arguments), total_rate) for load in loads
        ]
        self._processes: list[SpawnProcess] = [
            context.Process(target=read_until, args=(source, one), daemon=True)
            for one in self.readings
        ]
        for process in self._processes:
            process.start()
        for process, reading in zip(self._processes, self.readings, strict=True):
            reading.sender.close()
            while not reading.ready.wait(1):
                if not process.is_alive():
                    raise SystemExit("a reader has ended")

    def counts(self) -> tuple[int, int]:
        """Return how many entries the tails, and the readers from the start, have got."""
        counts = [0, 0]
        for reading in self.readings:
            counts[reading.load.tails == 0] += reading.entry_count.value
        return counts[0], counts[1]

    def end(self) -> list[float]:
        """Wait until all have ended; return the sorted times from append to delivery."""
        delivered_s: list[float] = []
        for reading in self.readings:
            with contextlib.suppress(EOFError):  # its exit code shows the failure
                delivered_s += reading.receiver.recv()
        for process in self._processes:
            process.join(10)
            if process.exitcode != 0:
                raise SystemExit(f"a reader ended with {process.exitcode}")
        return sorted(delivered_s)


def priority(arguments: argparse.Namespace) -> Priority:
    """Return the priority of the readers."""
    return Priority(arguments.nice, arguments.cgroup)


class Phases:
    """Measures the appends in one phase after the other."""

    def __init__(self, group: NodeGroup, arguments: argparse.Namespace) -> None:
        self._group, self._arguments = group, arguments
        self._leader = group.process_id(group.master())
        self._first: Appends | None = None

    def measure(self, name: str, readers: Readers | None = None) -> None:
        """Append for the time of one phase, and print a line."""
        arguments = self._arguments
        before = readers.counts() if readers else (0, 0)
        used_s = processor_s(self._leader)
        done = uvloop.run(
            append_for(self._group, arguments.rate, arguments.body_bytes, arguments.seconds)
        )
        used_s = processor_s(self._leader) - used_s
        after = readers.counts() if readers else (0, 0)
        tails, scans = (
            (now - then) / arguments.seconds for now, then in zip(after, before, strict=True)
        )
        first = self._first = self._first or done
        ratios = f"{done.p50_ms / first.p50_ms:.1f}, {done.p99_ms / first.p99_ms:.1f}"
        print(
            f"{name:13}  {done.rate:9,.0f}  {done.p50_ms:7.2f}  {done.p99_ms:7.2f}  {ratios:10}  "
            f"{used_s / arguments.seconds:18.2f}   {tails:18,.0f}   {scans:14,.0f}",
            flush=True,
        )


def measure_busy(
    context: SpawnContext, phases: Phases, count: int, arguments: argparse.Namespace
) -> None:
    """Measure beside processes that only use the processor, as many as the readers'."""
    stop = context.Event()
    others = [
        context.Process(target=use_processor, args=(stop, priority(arguments)), daemon=True)
        for _ in range(count)
    ]
    for process in others:
        process.start()
    time.sleep(1)
    phases.measure("busy machine")
    stop.set()
    for process in others:
        process.join()


def parsed() -> argparse.Namespace:
    """Return the arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--readers", type=int, default=100, help="tailing readers")
    parser.add_argument("--from-start", type=int, default=1, help="readers from the start")
    parser.add_argument("--rate", type=int, default=10_000, help="appends a second")
    parser.add_argument("--body-bytes", type=int, default=100)
    parser.add_argument("--nice", type=int, default=19, help="priority of the readers, 19 lowest")
    parser.add_argument("--cgroup", type=Path, help="a control group that the readers enter")
    parser.add_argument("--bare", action="store_true", help="readers do nothing with the entries")
    parser.add_argument("--no-busy", action="store_true", help="leave out the second phase")
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of each phase")
    arguments = parser.parse_args()
    if arguments.body_bytes < BODY_BYTES_MIN:
        parser.error(f"--body-bytes: at least {BODY_BYTES_MIN}")
    return arguments


def main() -> None:
    """Measure all phases and print a table."""
    arguments = parsed()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n{HEADING}")
    context = multiprocessing.get_context("spawn")
    long_turns = LongTurns()
    with (
        tempfile.TemporaryDirectory() as folder,
        measured_group(Path(folder), connections_per_address_max=500) as group,
    ):
        term, watch = group.status(group.master()).term, TurnWatch(group, group.peers)
        phases = Phases(group, arguments)
        phases.measure("no readers")
        processes = min(PROCESSES, arguments.readers) + arguments.from_start
        if not arguments.no_busy:
            measure_busy(context, phases, processes, arguments)
        stop = context.Event()
        readers = Readers(context, group, arguments, stop)
        phases.measure("readers", readers)
        stop.set()
        delivered_s = readers.end()
        if delivered_s:
            p50_s, p99_s = (delivered_s[int(len(delivered_s) * share)] for share in (0.5, 0.99))
            print(f"  delivered after {p50_s * 1000:.2f} ms (p50), {p99_s * 1000:.2f} ms (p99)")
        long_turns.report(watch.turns(turn_s_max(arguments.body_bytes)))
        print(f"  changes of term: {group.status(group.master()).term - term}")
    long_turns.judge()


if __name__ == "__main__":
    main()
