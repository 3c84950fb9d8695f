"""How long stock clients of RocketMQ wait when the master of a group of brokers is killed.

    python -m bench.rocketmq_failover       or: --kills 100 --versions 5.3.3 --json figures.json
    python -m bench.rocketmq_failover --hand-over --kills 50

Three members with the default timers share one port. A stock producer and a stock push consumer of
each version use it with their default settings; the producers send one message after another. In
each round the master is killed with SIGKILL. The round ends when every client works again; then the
member is started again, and the next round begins when all members are in order.

    producer    from the kill to the first SEND_OK of a send that was begun after it
    consumer    from the kill to the first delivery of such a message, or of a later one

With `--hand-over` the master hands its leadership to the next member instead, and keeps running:

    producer    the longest send, from the request on until 100 more sends are delivered
    consumer    the longest time without a delivery meanwhile

At the end `MessageJudge` compares what the clients were told with what was delivered, and with the
log. The exit code is 1 if it finds a fault. Needs a JDK and `python -m tools.java_rocketmq`.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from bench.failover_faults import wait_until_in_order
from bench.rocketmq_clients import PAUSE_MS, POLL_MS, StockClients, log_bodies
from bench.rocketmq_judge import Verdict
from dledger_client.sync import BlockingClient
from tools.groups.broker_group import BrokerGroup
from tools.groups.name_server import running_name_server
from tools.groups.node_group import next_port
from tools.groups.processes import MemberProcesses
from tools.groups.waiting import wait_for

HEARTBEAT_MS: Final = 250
ELECTION_MS: Final = 1000
"""Both are a member's defaults."""
FAULTS_SHOWN: Final = 10


@dataclasses.dataclass(slots=True, kw_only=True)
class Figures:
    """The figures of the clients of one version."""

    version: str
    producer_s: list[float] = dataclasses.field(default_factory=list)
    consumer_s: list[float] = dataclasses.field(default_factory=list)
    failed: int = 0
    failures: dict[str, int] = dataclasses.field(default_factory=dict)
    """How often each error message of a failed send occurred."""
    verdict: Verdict | None = None
    """What became of the messages; None before the end."""

    def rows(self) -> Sequence[str]:
        """Return two lines of the table."""
        return [
            f"{self.version:8} {name:9} {len(gaps):5} {statistics.median(gaps):8.2f} "
            f"{_p99(gaps):8.2f} {max(gaps):8.2f}"
            for name, gaps in (("producer", self.producer_s), ("consumer", self.consumer_s))
        ]

    @property
    def faults(self) -> list[str]:
        """What is wrong with the messages, at the end."""
        assert self.verdict is not None
        return self.verdict.faults

    def take_end(self, client: StockClients, log: Sequence[bytes] | None) -> None:
        """Take what became of a client's messages; `log` has the bodies of the log, if known."""
        self.failed = sum(sent.place is None for sent in client.sends)
        self.failures = dict(client.failures)
        self.verdict = client.verdict(log)

    def account(self) -> str:
        """Return what became of the messages."""
        return f"{self.version}: {self.failed} sends failed; {self.verdict}"


def _p99(gaps: Sequence[float]) -> float:
    return sorted(gaps)[int(len(gaps) * 0.99)]


def main() -> int:
    """Kill the master, or let it hand over, again and again; return 1 if anything is wrong."""
    arguments = _arguments()
    print(
        f"3 brokers and the clients on one machine: {os.cpu_count()} cores, {platform.machine()}, "
        f"Python {platform.python_version()}; load average at the start {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        figures = run(
            Path(folder), arguments.versions, arguments.kills, hand_over=arguments.hand_over,
            name_server=arguments.name_server, pause_ms=arguments.pause_ms,
            poll_ms=arguments.poll_ms, verbose=arguments.verbose,
        )  # fmt: skip
    print("version  client    times    p50 s    p99 s    max s")
    for found in figures:
        print("\n".join(found.rows()))
    for found in figures:
        print(found.account())
        for text, times in found.failures.items():
            print(f"  {times} times: {text[:300]}")
        for fault in found.faults[:FAULTS_SHOWN]:
            print(f"  FAULT: {fault}")
    print(f"load average at the end {os.getloadavg()[0]:.1f}")
    if arguments.json:
        raw = json.dumps([dataclasses.asdict(found) for found in figures], indent=2)
        arguments.json.write_text(raw + "\n")
    return int(any(found.faults for found in figures))


def run(
    folder: Path,
    versions: Sequence[str],
    times: int,
    *,
    hand_over: bool = False,
    name_server: str = "",
    pause_ms: int = PAUSE_MS,
    poll_ms: int = POLL_MS,
    verbose: bool = False,
) -> list[Figures]:
    """Kill the master, or let it hand over, so many times under clients of these versions."""
    with contextlib.ExitStack() as stack:
        members = folder / "members"
        members.mkdir()
        registered_at = ""
        if name_server:
            registered_at = stack.enter_context(
                running_name_server(folder / "names", name_server, next_port())
            )
        group = stack.enter_context(
            BrokerGroup(
                members, shares_port=True, heartbeat_interval_ms=HEARTBEAT_MS,
                election_timeout_ms=ELECTION_MS, registered_at=registered_at,
            )
        )  # fmt: skip
        wait_until_in_order(group)
        names = registered_at or group.group_address
        if registered_at:
            wait_for(partial(_is_registered, group), "all members are registered", timeout_s=60)
        clients = [
            stack.enter_context(StockClients(folder, version, names, pause_ms, poll_ms))
            for version in versions
        ]
        figures = [Figures(version=version) for version in versions]
        for number in range(times):
            if hand_over:
                _hand_over_once(group, clients, figures)
            else:
                kill_once(group, partial(wait_until_in_order, group), clients, figures)
            if verbose:
                gaps = [(f"{f.producer_s[-1]:.2f}", f"{f.consumer_s[-1]:.2f}") for f in figures]
                print(number, gaps, flush=True)
        for client in clients:
            client.stop_sending()
        log = list(log_bodies(group.servers, "g"))
        for client, found in zip(clients, figures, strict=True):
            found.take_end(client, log)
    return figures


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10, help="kills of the master (default: 10)")
    parser.add_argument(
        "--hand-over", action="store_true", help="hand the leadership over instead of killing"
    )
    parser.add_argument("--versions", nargs="+", default=["5.3.3", "4.9.8"])
    parser.add_argument(
        "--pause-ms", type=int, default=PAUSE_MS,
        help=f"pause after each send (default: {PAUSE_MS})",
    )  # fmt: skip
    parser.add_argument(
        "--name-server", metavar="VERSION", default="",
        help="let clients find the group at a stock name server of this version",
    )  # fmt: skip
    parser.add_argument(
        "--poll-ms", type=int, default=POLL_MS,
        help=f"how often clients ask for the route (default: {POLL_MS}, as theirs)",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, help="a file to write the figures to")
    parser.add_argument("--verbose", action="store_true", help="print every round")
    return parser.parse_args()


def _is_registered(group: BrokerGroup) -> bool:
    """Return whether every member is registered at every name server."""
    brokers = [group.status(member).broker for member in group.peers]
    return all(
        broker is not None and all(server.registered for server in broker.name_servers)
        for broker in brokers
    )


def kill_once(
    group: MemberProcesses,
    wait_for_leader: Callable[[], str],
    clients: Sequence[StockClients],
    figures: Sequence[Figures],
    *,
    may_lose: bool = False,
) -> None:
    """Kill the master, measure how long each client waits, and start the member again.

    `wait_for_leader` waits until all members are in order, and returns the leader. With `may_lose`,
    messages that are never delivered do not hold up the kill.
    """
    leader = wait_for_leader()
    for client in clients:
        if may_lose:
            client.wait_until_going()
        else:
            client.wait_until_steady()
    killed_s = time.monotonic()
    group.kill(leader)
    for client, found in zip(clients, figures, strict=True):
        producer_s, consumer_s = client.gaps_s(killed_s)
        found.producer_s.append(producer_s)
        found.consumer_s.append(consumer_s)
    group.start(leader)


def _hand_over_once(
    group: BrokerGroup, clients: Sequence[StockClients], figures: Sequence[Figures]
) -> None:
    """Let the master hand over, and measure how long each client pauses until it is steady."""
    leader = wait_until_in_order(group)
    for client in clients:
        client.wait_until_steady()
    members = list(group.peers)
    successor = members[(members.index(leader) + 1) % len(members)]
    with BlockingClient(group.servers, "g") as administrator:
        administrator.metadata()
        asked_s = time.monotonic()
        administrator.transfer(successor)
    assert wait_until_in_order(group) == successor, "another member leads: run it again"
    for client, found in zip(clients, figures, strict=True):
        client.wait_until_steady()
        found.producer_s.append(client.longest_send_s(asked_s))
        found.consumer_s.append(client.longest_pause_of_deliveries_s(asked_s))


if __name__ == "__main__":
    sys.exit(main())
