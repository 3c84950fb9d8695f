"""`dledger group local --broker` with RocketMQ's own clients, which know one address only."""

import contextlib
import os
import signal
import statistics
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from bench.rocketmq_clients import StockClients, log_bodies
from dledger_formats.http.status import NodeStatus
from dledger_group.local_process import LocalGroupProcess
from dledger_java.rocketmq import of_kind, play
from tools import java_rocketmq
from tools.groups.ports import consecutive_ports
from tools.groups.waiting import wait_for
from tools.java_dledger import JavaMissingError

pytestmark = [pytest.mark.interop, pytest.mark.in_every_sample]

KILLS = 3
MEDIAN_S_MAX = 2.0
GAP_S_MAX = 10.0
OWN_TIMEOUT_S = 30.0
FAILED_AT_A_KILL_MAX = 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize("version", java_rocketmq.CLIENT_VERSIONS)
def test_default_clients_send_and_consume_through_kills_of_the_leader(
    version: str, tmp_path: Path
) -> None:
    """Their interval of polling routes is 30 s, so they find no other address in time. A client of
    4.9 may miss that its connection is reset, and then waits for its own time-out.
    """
    options = ("--broker", f"--broker-port={consecutive_ports(4)}")
    gaps_s = []
    with LocalGroupProcess(tmp_path / "data", 3, 0, *options) as group:
        pids = {member: found["pid"] for member, found in group.started["members"].items()}
        address = group.started["broker"]["namesrvAddr"]
        wait_for(lambda: leader_of(group), "the members accept clients")
        with stock_clients(tmp_path / "clients", version, address) as clients:
            for _ in range(KILLS):
                leader = wait_for(lambda: leader_of(group), "all members are ready")
                clients.wait_until_steady()
                killed_s = time.monotonic()
                os.kill(pids[leader], signal.SIGKILL)
                gaps_s.append(clients.gaps_s(killed_s))
                restarted = group.event("restarted")
                pids[restarted["member"]] = restarted["pid"]
            clients.stop_sending()
            verdict = clients.verdict(log_bodies(group.servers, "local"))
            failures = clients.failures

    print(f"{version}: gaps of producer and consumer {gaps_s}; {verdict}")
    producer_s, consumer_s = zip(*gaps_s, strict=True)
    assert verdict.faults == []
    assert failures.total() <= FAILED_AT_A_KILL_MAX * KILLS, failures
    assert max(statistics.median(producer_s), statistics.median(consumer_s)) < MEDIAN_S_MAX
    assert max(producer_s) < GAP_S_MAX
    assert max(consumer_s) < GAP_S_MAX + (OWN_TIMEOUT_S if version < "5" else 0.0)


def stock_clients(folder: Path, version: str, address: str) -> StockClients:
    try:
        return StockClients(folder, version, address)
    except JavaMissingError as error:
        pytest.skip(str(error))


def leader_of(group: LocalGroupProcess) -> str | None:
    """Return the leader if all members are ready and follow it."""
    found = []
    for member in group.started["members"].values():
        with contextlib.suppress(OSError), urlopen(f"http://{member['http']}/status") as page:
            found.append(NodeStatus.from_json(page.read()))
    leaders = {status.leader_id for status in found if status.ready}
    is_whole = len(found) == len(group.started["members"]) and all(each.ready for each in found)
    return leaders.pop() if is_whole and len(leaders) == 1 else None


def test_a_member_of_a_stopped_group_of_brokers_keeps_its_messages(
    rocketmq_5: str, tmp_path: Path
) -> None:
    port = consecutive_ports(2)
    options = ("--broker", f"--broker-port={port}")
    with LocalGroupProcess(tmp_path / "data", 1, 0, *options) as group:
        address = group.started["broker"]["namesrvAddr"]
        group.event("leader")
        play(tmp_path, rocketmq_5, "send", address, topic="t", count=10)
    with LocalGroupProcess(tmp_path / "data", 1, 0, *options) as group:
        group.event("leader")
        events = play(tmp_path, rocketmq_5, "pull", address, topic="t", group="g", count=10)

    assert len(of_kind(events, "received")) == 10
