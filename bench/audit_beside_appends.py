"""What an audit at the default rate costs the appends that run beside it.

    python -m bench.audit_beside_appends                 three logs of 1 GiB, 1,000 appends/s

The appends are measured alone and during an audit, in turn. Members, writer and audit share the
machine's cores, while a production audit has a pod of its own. So the audit runs at the
lowest priority unless `--nice` says otherwise, and with `--cgroup` it enters a control group, for
example one with `cpu.idle`. The ratio is that of the 99th percentiles of each pair.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import uvloop

from bench.audit import append, audit_command
from bench.measured_group import measured_group
from bench.steady_appends import Appends, append_for, append_while
from bench.tail_readers import Priority
from tools.groups.node_group import NodeGroup


def measure_beside(group: NodeGroup, arguments: argparse.Namespace) -> tuple[Appends, float]:
    """Append while an audit runs; return the appends and how long the audit took.

    Raises SystemExit unless its verdict is Sound.
    """
    priority = Priority(arguments.nice, arguments.cgroup)
    command = audit_command(group, arguments.master)
    began_s = time.monotonic()
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=priority.apply,  # noqa: PLW1509 - this process has no other thread
    ) as program:
        done = uvloop.run(
            append_while(
                group, arguments.rate, arguments.body_bytes, lambda _: program.poll() is None
            )
        )
        code = program.wait()
    if code:
        raise SystemExit(f"the audit ended with {code}: {' '.join(command)}")
    return done, time.monotonic() - began_s


def show(name: str, done: Appends, rest: str = "") -> None:
    """Print a row."""
    print(f"{name:12}  {done.rate:9,.0f}  {done.p50_ms:7.2f}  {done.p99_ms:7.2f}{rest}", flush=True)


def parsed() -> argparse.Namespace:
    """Return the arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024, help="size of each member's log")
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--rate", type=int, default=1000, help="appends a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="appends without an audit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--nice", type=int, default=19, help="priority of the audit, 19 lowest")
    parser.add_argument("--cgroup", type=Path, help="a control group that the audit enters")
    return parser.parse_args()


def main() -> None:
    """Measure all rounds and print a table."""
    arguments = parsed()
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n"
        "              appends/s   p50 ms   p99 ms   ratio of p99   audit s"
    )
    entries = (arguments.mib << 20) // (arguments.body_bytes + 48)
    ratios = []
    with (
        tempfile.TemporaryDirectory() as folder,
        measured_group(Path(folder)) as group,
    ):
        term = group.status(group.master()).term
        uvloop.run(append(group, entries, arguments.body_bytes))
        for _ in range(arguments.rounds):
            alone = uvloop.run(
                append_for(group, arguments.rate, arguments.body_bytes, arguments.seconds)
            )
            show("no audit", alone)
            beside, audit_s = measure_beside(group, arguments)
            ratios.append(beside.p99_ms / alone.p99_ms)
            show("an audit", beside, f"   {ratios[-1]:12.1f}   {audit_s:7.1f}")
        print(
            f"  median ratio of p99: {statistics.median(ratios):.1f}\n"
            f"  changes of term: {group.status(group.master()).term - term}"
        )


if __name__ == "__main__":
    main()
