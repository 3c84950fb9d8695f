"""Measure this project, Kafka, NATS JetStream and etcd in one run.

    make bench-peers                    or, for a run of a few minutes with small loads:
    python -m bench.peers --quick --peers dledger nats --json figures.json

Each group has three members and, with its client, the machine to itself. A peer that is not built
(`python -m tools.peer_programs`) is skipped. The exit code is 1 if a peer failed.
"""

import argparse
import dataclasses
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.peers.dledger import DLedger, DLedgerAsync
from bench.peers.etcd import Etcd
from bench.peers.kafka import Kafka, KafkaUnflushed
from bench.peers.measurements import Figures, Log, Plan, measure
from bench.peers.nats import Nats, NatsUnflushed
from bench.peers.peer import Peer
from bench.peers.report import report_json, tables
from tools.peer_programs import PeerMissingError

PEERS: Final[dict[str, Callable[[], Peer]]] = {
    kind.description.name: kind
    for kind in (DLedger, Kafka, Nats, Etcd, DLedgerAsync, KafkaUnflushed, NatsUnflushed)
}
DEFAULT: Final = ("dledger", "kafka", "nats", "etcd")
"""The peers that flush an append before they acknowledge it."""
QUICK: Final = Plan(
    idle_s=3.0,
    settle_s=1.0,
    kills=1,
    append_s=1.0,
    logs=(Log("k1", 20_000, 1024), Log("b8", 50_000, 8)),
    passes=1,
    warm_up_share=0.05,
)
OPTIONS: Final = {
    "idle_s": "duration of the idle measurement",
    "kills": "how often the leader is killed",
    "append_s": "duration of each load of appends",
    "passes": "how often each log is read in each way",
    "warm_up_share": "share of each peer's warm-up that is done",
}
"""Fields of the plan that have an option."""


def main(words: Sequence[str] | None = None) -> int:
    """Measure the chosen peers one after the other, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(DEFAULT))
    parser.add_argument("--quick", action="store_true", help="small loads and almost no warm-up")
    for name, what in OPTIONS.items():
        kind = type(getattr(Plan(), name))
        parser.add_argument("--" + name.replace("_", "-"), type=kind, help=what)
    parser.add_argument("--json", type=Path, help="a file to write the figures to")
    parser.add_argument(
        "--folder", help="where the members keep their logs (default: a temporary folder)"
    )
    arguments = parser.parse_args(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the members too
    given = {name: getattr(arguments, name) for name in OPTIONS}
    plan = dataclasses.replace(
        QUICK if arguments.quick else Plan(),
        **{name: value for name, value in given.items() if value is not None},
    )
    machine: dict[str, object] = {
        "processors": os.cpu_count(),
        "architecture": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average_at_start": os.getloadavg()[0],
    }
    print(", ".join(f"{name}: {value}" for name, value in machine.items()), flush=True)
    every: list[Figures] = []
    try:
        for figures in run(arguments.peers, plan, arguments.folder):
            every.append(figures)
            if arguments.json:
                arguments.json.write_text(report_json(machine, plan, every) + "\n")
    finally:  # an interrupted run shows the peers that it has measured
        print(*tables(every), sep="\n", flush=True)
    return int(any(figures.failure for figures in every))


def run(names: list[str], plan: Plan, folder: str | None) -> Iterator[Figures]:
    """Measure peers and yield their figures; skip, by name, those that are not built."""
    for name in names:
        try:
            peer = PEERS[name]()
        except PeerMissingError as error:
            print(f"{name} is skipped: {error}", flush=True)
            continue
        print(f"measuring {name}", flush=True)
        with tempfile.TemporaryDirectory(prefix="peers-", dir=folder) as own_folder:
            yield measure(peer, plan, Path(own_folder))


if __name__ == "__main__":
    raise SystemExit(main())
