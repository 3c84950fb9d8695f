"""RocketMQ's own brokers and this project's under the same load: same stock client, one run.

    python -m bench.rocketmq_java       or: --rounds 3 --seconds 10 --versions 5.3.3

Each group has three members on loopback, and shares the machine only with the client. RocketMQ's
brokers run in DLedger mode with a name server of their version, and acknowledge what a majority has
in memory; AsyncFlush promises the same, and SyncFlush waits for fdatasync besides. Clients send to
the master's own address in all groups. In each round every group is started in turn, and gets a
backlog, which is also the warm-up: Java compiles its code meanwhile. Then it gets

    1, 64       this many threads, which send one message after the other
    async       one thread with 1,000 sends outstanding
    catch-up    a push consumer with default settings gets the backlog, from the first delivery to
                the last; twice, as two consumer groups, and the second is reported

Versions that are not built are skipped by name
(`python -m tools.java_rocketmq` builds them). Figures are medians over the rounds.
"""

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from bench.rocketmq_send import SEGMENT_BYTES
from dledger_formats.http.status import FlushDiskType
from tools import java_rocketmq
from tools.groups.broker_group import BrokerGroup
from tools.groups.java_process import start_java
from tools.groups.name_server import running_name_server
from tools.groups.node_group import next_port
from tools.groups.rocketmq_group import RocketmqGroup
from tools.java_dledger import JavaMissingError

CLIENT_VERSION: Final = "5.3.3"
CLIENT_MAIN: Final = "RocketmqScenario"
JVM_OPTIONS: Final = ("-Xmx1g",)
BODY_BYTES: Final = 1024
TIMEOUT_S: Final = 120
LOADS: Final[dict[str, dict[str, object]]] = {
    "1 thread": {"threads": 1},
    "64 threads": {"threads": 64},
    "async, 1,000 outstanding": {"outstanding": 1000},
}
CATCH_UP: Final = "push consumer's catch-up"

Event: TypeAlias = dict[str, Any]
Running: TypeAlias = "contextlib.AbstractContextManager[str]"


class Client:
    """RocketMQ's own client, started for each load."""

    def __init__(self, folder: Path, name_servers: str) -> None:
        self._folder = folder
        self._name_servers = name_servers
        self._class_path = java_rocketmq.find_client(CLIENT_VERSION)

    def play(self, kind: str, **options: object) -> list[Event]:
        """Play one scenario of `LoadScenario.java`; return its events."""
        arguments = [kind, self._name_servers, *(f"{name}={v}" for name, v in options.items())]
        with (self._folder / "client.log").open("ab") as log:
            client = start_java(
                self._class_path, CLIENT_MAIN, arguments, home=self._folder, log=log,
                options=JVM_OPTIONS, piped=True,
            )  # fmt: skip
        try:
            output, _ = client.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            client.kill()
            client.communicate()
            raise
        events: list[Event] = [json.loads(line) for line in output.splitlines()]
        if not events or events.pop()["event"] != "end":
            raise RuntimeError(f"{kind} {options} failed: {output.decode()[-1000:]}")
        return events


@contextlib.contextmanager
def rocketmq(version: str, folder: Path) -> Iterator[str]:
    """Run RocketMQ's brokers; yield what clients need as their name servers."""
    with running_name_server(folder / "names", version, next_port()) as names:
        members = folder / "members"
        members.mkdir()
        with RocketmqGroup(members, version, names):
            yield names


@contextlib.contextmanager
def ours(flush: FlushDiskType, folder: Path) -> Iterator[str]:
    """Run this project's brokers; yield what clients need as their name servers."""
    with BrokerGroup(
        folder, flush_disk_type=flush, heartbeat_interval_ms=250, election_timeout_ms=1000,
        segment_size_bytes=SEGMENT_BYTES, index_segment_size_bytes=32 * 1_000_000,
    ) as group:  # fmt: skip
        group.master()
        yield group.name_servers


def contenders(versions: list[str]) -> dict[str, Callable[[Path], Running]]:
    """Return a function that runs each kind of group, by name; print which are not built."""
    found: dict[str, Callable[[Path], Running]] = {}
    for version in versions:
        try:
            java_rocketmq.find_broker(version)
            java_rocketmq.find_name_server(version)
        except JavaMissingError as error:
            print(f"RocketMQ {version} is skipped: {error}", flush=True)
        else:
            found[f"RocketMQ {version}"] = partial(rocketmq, version)
    for flush in (FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH):
        found[f"ours, {flush}"] = partial(ours, flush)
    return found


def measure(client: Client, arguments: argparse.Namespace) -> Iterator[tuple[str, Event]]:
    """Yield each load with the client's event of it; `per_s` is the rate."""
    backlog = arguments.backlog
    client.play("load", topic="backlog", bytes=BODY_BYTES, outstanding=1000, count=backlog)
    for name, options in LOADS.items():
        [event] = client.play(
            "load", topic="load", bytes=BODY_BYTES, seconds=arguments.seconds,
            warm=arguments.warm, **options,
        )  # fmt: skip
        yield name, event | {"per_s": event["measured"] / arguments.seconds}
    event = client.play("drain", topic="backlog", group="drain", count=backlog, rounds=2)[-1]
    yield CATCH_UP, event | {"per_s": backlog / event["took_us"] * 1e6}


def print_table(rounds: dict[str, dict[str, list[Event]]]) -> None:
    """Print the lines of each load; the ratios are to the first group."""
    for load, groups in rounds.items():
        print(f"\n{load:28} messages/s   p50 ms   p99 ms   failed   times the first")
        base = 0.0
        for group, events in groups.items():
            rate = statistics.median(event["per_s"] for event in events)
            base = base or rate
            p50, p99 = (
                statistics.median(event.get(key, 0) for event in events) / 1000
                for key in ("p50_us", "p99_us")
            )
            failed = sum(event.get("failed", 0) for event in events)
            print(f"{group:28} {rate:10,.0f} {p50:8.2f} {p99:8.2f} {failed:8} {rate / base:10.2f}")
            for failure in {event["failure"] for event in events if event.get("failure")}:
                print(f"    a send failed: {failure[:160]}")


def rounds_of(
    arguments: argparse.Namespace,
) -> Iterator[tuple[str, str, Event]]:
    """Yield every load of every group in every round; print which groups failed."""
    groups = contenders(arguments.versions)
    for name, running in list(groups.items()) * arguments.rounds:
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as home:
            try:
                with running(Path(folder)) as name_servers:
                    client = Client(Path(home), name_servers)
                    for load, event in measure(client, arguments):
                        yield name, load, event
            except (AssertionError, RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"{name} failed: {error}", flush=True)


def main() -> None:
    """Measure every load on every group, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5, help="duration of each load")
    parser.add_argument("--warm", type=int, default=4, help="seconds of each load before that")
    parser.add_argument("--backlog", type=int, default=30_000, help="messages to catch up with")
    parser.add_argument("--versions", nargs="*", default=list(java_rocketmq.BROKER_VERSIONS))
    arguments = parser.parse_args()
    java_rocketmq.find_client(CLIENT_VERSION)
    print(
        f"groups of 3 and the stock client {CLIENT_VERSION} on one machine: "
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}; "
        f"bodies of {BODY_BYTES} bytes, "
        f"{arguments.rounds} rounds of {arguments.seconds} s; load average at the start "
        f"{os.getloadavg()[0]:.1f}",
        flush=True,
    )
    rounds: dict[str, dict[str, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for name, load, event in rounds_of(arguments):
        rounds[load][name].append(event)
        print(f"{name}, {load}: {event['per_s']:,.0f}/s", flush=True)
    print_table(rounds)


if __name__ == "__main__":
    main()
