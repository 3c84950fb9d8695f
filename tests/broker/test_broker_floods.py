"""A flood of clients at the broker's port: others are served, and memory is bounded."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_broker.door.reading.held_pulls import HELD_OF_CLIENT_MAX
from dledger_broker_client.client import BrokerClient, pull_ext
from dledger_formats.protocol import frames
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_node.remoting.limits import Limits
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.fuzz

Code = RequestCode
TRANSIENT_BYTES_MAX = 160 << 20
"""Memory beyond the limits: reads in progress, and free memory that the allocator keeps."""
ROUNDS = 3
"""A client must be disturbed little in one of these: it shares the machine with flood and members.
"""
P50_MORE_S, P99_MORE_S = 0.01, 0.05
"""Delays of a send that the flood may cause by its use of the processor."""
HELD = {"sysFlag": "6", "suspendTimeoutMillis": "20000"}


@pytest.fixture
def group(tmp_path: Path) -> Iterator[BrokerGroup]:
    """A group that admits many connections from one address."""
    with BrokerGroup(
        tmp_path,
        heartbeat_interval_ms=250,
        election_timeout_ms=4000,  # a busy machine must not depose the leader
        connections_per_address_max=600,
    ) as running:
        running.master()
        yield running


def own_memory_bytes(process_id: int) -> int:
    """Return the memory of a process in bytes, without its mapped files."""
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def send_for(address: str, seconds: float) -> list[float]:
    """Send one message after the other. Return the duration of each in seconds, in order."""
    took_s = []
    end_s = time.perf_counter() + seconds
    with BrokerClient(address) as client:
        while (begun_s := time.perf_counter()) < end_s:
            assert client.send("served", b"x" * 256).code == ResponseCode.SUCCESS
            took_s.append(time.perf_counter() - begun_s)
    return sorted(took_s)


def at(ordered_s: list[float], share: float) -> float:
    return ordered_s[int(len(ordered_s) * share)]


def is_disturbed(before_s: list[float], during_s: list[float]) -> bool:
    """Return whether the sends of a client were slowed down beyond twice their durations."""
    print(
        f"{len(before_s)} sends: {quantiles(before_s)}; beside the flood {len(during_s)}: "
        f"{quantiles(during_s)}"
    )
    return (
        at(during_s, 0.5) > 2 * at(before_s, 0.5) + P50_MORE_S
        or at(during_s, 0.99) > 2 * at(before_s, 0.99) + P99_MORE_S
    )


def quantiles(ordered_s: list[float]) -> str:
    return f"p50 {at(ordered_s, 0.5) * 1000:.1f} ms, p99 {at(ordered_s, 0.99) * 1000:.1f} ms"


def closed_by_reason(group: BrokerGroup, member: str) -> dict[str, float]:
    page = group.get(member, "/metrics")[1].decode()
    lines = [line for line in page.splitlines() if 'reason="' in line and "_total{" in line]
    return {line.split('reason="')[1].split('"')[0]: float(line.split()[-1]) for line in lines}


class Connecting(threading.Thread):
    """One address that opens connections and keeps them, and opens others for those it loses."""

    def __init__(self, address: str, count: int) -> None:
        super().__init__(daemon=True)
        host, _, port = address.rpartition(":")
        self._address, self._count = (host, int(port)), count
        self.opened = 0
        self.stopped = threading.Event()

    def run(self) -> None:
        lines: deque[socket.socket] = deque()
        while not self.stopped.is_set():
            with contextlib.suppress(OSError):
                lines.append(socket.create_connection(self._address, timeout=1))
                self.opened += 1
                lines[-1].sendall(route_request())
            if len(lines) > self._count:
                lines.popleft().close()  # the listener may have closed it long ago
                self.stopped.wait(0.001)
        for line in lines:
            line.close()


def route_request() -> bytes:
    command = RemotingCommand(
        code=int(Code.GET_ROUTEINFO_BY_TOPIC), opaque=1, ext_fields={"topic": "TBW102"}
    )
    return frames.encode(command)


def test_a_crowd_of_every_kind_costs_bounded_memory_and_others_little(
    group: BrokerGroup, pytestconfig: pytest.Config
) -> None:
    seconds = pytestconfig.getoption("--flood-seconds")
    leader = group.master()
    address = group.broker_addresses[leader]
    with BrokerClient(address) as client:
        for _ in range(4):
            client.send("large", bytes(60_000))
    term = group.status(leader).term
    memory_bytes = own_memory_bytes(group.process_id(leader))

    def disturbed() -> bool:
        before_s = send_for(address, seconds / 2)
        with crowds_at(address, seconds):
            during_s = send_for(address, seconds)
            peak_bytes = own_memory_bytes(group.process_id(leader)) - memory_bytes
        print(f"{peak_bytes >> 20} MiB more")
        assert peak_bytes <= Limits().buffered_bytes_max + TRANSIENT_BYTES_MAX
        return is_disturbed(before_s, during_s)

    assert not all(disturbed() for _ in range(ROUNDS))
    status = group.status(leader)
    assert (status.term, status.master) == (term, True)
    assert closed_by_reason(group, leader)["protocol"] > 0


@contextlib.contextmanager
def crowds_at(address: str, seconds: float) -> Iterator[None]:
    """Let hostile clients of every kind use an address for so long, from processes of their own."""
    host, _, port = address.rpartition(":")
    programs = (
        ("dledger_wire.flood", host, port, str(seconds)),
        ("dledger_broker_client.crowd", address, str(seconds)),
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    crowds = [
        subprocess.Popen([sys.executable, "-m", *program], env=environment) for program in programs
    ]
    try:
        yield
        assert [crowd.wait(60) for crowd in crowds] == [0, 0]
    finally:
        for crowd in crowds:
            crowd.kill()
            crowd.wait()


def connect_and_send(address: str, count: int) -> list[float]:
    """Send each message over a connection of its own, from another address than the flood."""
    took_s = []
    for _ in range(count):
        begun_s = time.perf_counter()
        with BrokerClient(address, from_host="127.0.0.2") as client:
            assert client.send("served").code == ResponseCode.SUCCESS
        took_s.append(time.perf_counter() - begun_s)
    return sorted(took_s)


def test_an_address_that_opens_all_connections_it_can_leaves_places_to_others(
    tmp_path: Path,
) -> None:
    places = 200
    with BrokerGroup(
        tmp_path, 1, connections_max=places, connections_per_address_max=1000
    ) as group:
        address = group.broker_addresses[group.master()]

        def disturbed() -> bool:
            before_s = connect_and_send(address, 200)
            flood = Connecting(address, 2 * places)
            flood.start()
            try:
                wait_for(lambda: flood.opened > 2 * places, "it has opened more than have a place")
                during_s = connect_and_send(address, 200)
            finally:
                flood.stopped.set()
                flood.join(60)
            return is_disturbed(before_s, during_s)

        assert not all(disturbed() for _ in range(ROUNDS))
        closed = closed_by_reason(group, "n0")

    assert closed["connections_per_address"] > 0
    assert closed["connections"] == 0


def test_one_connection_holds_so_many_pulls_and_the_next_is_refused_in_words(
    group: BrokerGroup,
) -> None:
    address = group.broker_addresses[group.master()]
    with BrokerClient(address) as greedy, BrokerClient(address) as other:
        greedy.send("held")
        greedy.wait_until_visible("held", 1)
        for _ in range(HELD_OF_CLIENT_MAX):
            greedy.begin(Code.PULL_MESSAGE, pull_ext("held", 1, **HELD))

        refused = greedy.pull("held", 1, **HELD)
        waiting = other.begin(Code.PULL_MESSAGE, pull_ext("held", 1, **HELD))
        other.ask(Code.GET_BROKER_CLUSTER_INFO)
        with BrokerClient(address) as sender:
            sender.send("held", b"for all")

        assert "too many pulls wait" in (refused.remark or "")
        assert other.answer(waiting).code == ResponseCode.SUCCESS


def test_half_a_frame_ends_its_connection_and_is_counted(group: BrokerGroup) -> None:
    leader = group.master()
    host, _, port = group.broker_addresses[leader].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as half:
        half.sendall((1000).to_bytes(4, "big") + b"\0")
        with pytest.raises(ConnectionResetError):  # it has 5 s for its first frame
            half.recv(100)

    wait_for(lambda: closed_by_reason(group, leader)["first_frame"] > 0, "it is counted")
