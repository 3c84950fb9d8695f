"""How long stock clients wait when a master is killed: RocketMQ's own brokers and ours, in one run.

    python -m bench.rocketmq_failover_java     or: --kills 20 --rounds 2 --versions 5.3.3 4.9.8

RocketMQ's brokers run in DLedger mode with a name server of their version, ours share one port and
use SyncFlush. Both groups have three members and the same clients with default settings, one group
after the other in each round. `bench.rocketmq_failover` says what is measured. A kill comes when
all members are registered (ours: ready and in one term) and a message that was sent after that is
delivered. Messages that RocketMQ loses do not end the run: they are counted as faults.
"""

import argparse
import contextlib
import os
import platform
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.failover_faults import wait_until_in_order
from bench.rocketmq_clients import StockClients, log_bodies
from bench.rocketmq_failover import ELECTION_MS, HEARTBEAT_MS, Figures, kill_once
from tools.groups.broker_group import BrokerGroup
from tools.groups.name_server import running_name_server
from tools.groups.node_group import next_port
from tools.groups.rocketmq_group import RocketmqGroup

ROCKETMQ_VERSION: Final = "5.3.3"
FAULTS: Final = {
    "was acknowledged and not delivered": "acknowledged and never delivered",
    "was given to": "offsets of a queue that were given out twice",
    "was delivered again": "deliveries after more than 20 s",
}
"""The kinds of faults: a part of the judge's sentence, and the name in the table."""


def main() -> int:
    """Kill masters of both groups; return 1 if ours has lost or mixed up anything."""
    arguments = _arguments()
    print(
        f"groups of 3 and the clients on one machine: {os.cpu_count()} cores, "
        f"{platform.machine()}, Python {platform.python_version()}; load average at the start "
        f"{os.getloadavg()[0]:.1f}",
        flush=True,
    )
    groups = {f"RocketMQ {ROCKETMQ_VERSION}": _kill_rocketmq, "ours, SyncFlush": _kill_ours}
    ours_has_faults = False
    print("version  client    times    p50 s    p99 s    max s")
    for _ in range(arguments.rounds):
        for name, kill_under_clients in groups.items():
            with tempfile.TemporaryDirectory() as folder:
                found = kill_under_clients(Path(folder), arguments.versions, arguments.kills)
            print(name, flush=True)
            for figures in found:
                _print(figures)
            if kill_under_clients is _kill_ours:
                ours_has_faults |= any(figures.faults for figures in found)
    return int(ours_has_faults)


def _kill_rocketmq(folder: Path, versions: Sequence[str], kills: int) -> list[Figures]:
    names_folder, members = folder / "names", folder / "members"
    members.mkdir()
    with (
        running_name_server(names_folder, ROCKETMQ_VERSION, next_port()) as names,
        RocketmqGroup(members, ROCKETMQ_VERSION, names) as group,
        _clients(folder, versions, names) as clients,
    ):
        found = [Figures(version=version) for version in versions]
        for _ in range(kills):
            kill_once(group, group.wait_until_in_order, clients, found, may_lose=True)
        return _judged(clients, found, log=None)


def _kill_ours(folder: Path, versions: Sequence[str], kills: int) -> list[Figures]:
    members = folder / "members"
    members.mkdir()
    with (
        BrokerGroup(
            members, shares_port=True, heartbeat_interval_ms=HEARTBEAT_MS,
            election_timeout_ms=ELECTION_MS,
        ) as group,
        _clients(folder, versions, group.group_address) as clients,
    ):  # fmt: skip
        found = [Figures(version=version) for version in versions]
        for _ in range(kills):
            kill_once(group, lambda: wait_until_in_order(group), clients, found, may_lose=True)
        return _judged(clients, found, log=lambda: list(log_bodies(group.servers, "g")))


@contextlib.contextmanager
def _clients(folder: Path, versions: Sequence[str], names: str) -> Iterator[list[StockClients]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(StockClients(folder, version, names)) for version in versions]


def _judged(
    clients: Sequence[StockClients], found: list[Figures], log: Callable[[], list[bytes]] | None
) -> list[Figures]:
    """Let the clients end, and add what became of their messages to the figures."""
    for client in clients:
        client.stop_sending()
    bodies = log() if log is not None else None
    for client, figures in zip(clients, found, strict=True):
        figures.take_end(client, bodies)
    return found


def _print(figures: Figures) -> None:
    print("\n".join(figures.rows()))
    print(f"  {figures.account()}")
    kinds = Counter(
        next((name for part, name in FAULTS.items() if part in fault), "other faults")
        for fault in figures.faults
    )
    for kind, count in kinds.items():
        print(f"  {count:,} {kind}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20, help="kills in each round (default: 20)")
    parser.add_argument("--rounds", type=int, default=1, help="rounds (default: 1)")
    parser.add_argument("--versions", nargs="+", default=["5.3.3"], help="the clients' versions")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
