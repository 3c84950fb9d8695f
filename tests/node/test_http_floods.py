"""Many valid HTTP requests at once: no turn of the leader's loop is long, and it still leads."""

import contextlib
import selectors
import socket
import time
from collections.abc import Iterator

import pytest

from dledger_group.turns import rounds_of_short_turns
from tools.groups.node_group import NodeGroup

FLOOD_S = 2.0
ADDRESSES = [f"127.0.0.{number}" for number in range(2, 6)]
CONNECTIONS_PER_ADDRESS = 126
"""Together as many as a member accepts, except a few for the test's own requests."""
ANSWER_S_MAX = 20.0


@pytest.fixture(scope="module")
def leader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodeGroup, str]]:
    """A group with a leader."""
    with NodeGroup(
        tmp_path_factory.mktemp("group"), heartbeat_interval_ms=250, election_timeout_ms=4000
    ) as group:
        yield group, group.master()


@contextlib.contextmanager
def crowd(group: NodeGroup, member: str) -> Iterator[list[socket.socket]]:
    """Connect from all addresses while the block runs."""
    with contextlib.ExitStack() as opened:
        connections = []
        for address in ADDRESSES:
            for _ in range(CONNECTIONS_PER_ADDRESS):
                connection = opened.enter_context(socket.socket())
                connection.bind((address, 0))
                connection.connect((group.host(member), group.http_ports[member]))
                connections.append(connection)
        yield connections


def request_to(path: str, *fields: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *fields, "", ""]).encode()


def answers(connections: list[socket.socket]) -> int:
    """Wait until each connection has its answer; return how many answers are 200 or 206."""
    good, received = 0, dict.fromkeys(connections, b"")
    deadline_s = time.monotonic() + ANSWER_S_MAX
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        while selector.get_map() and time.monotonic() < deadline_s:
            for key, _ in selector.select(1.0):
                connection = next(each for each in [key.fileobj] if isinstance(each, socket.socket))
                data = connection.recv(1 << 20)
                assert data, "the member closed a connection of a valid request"
                received[connection] += data
                head, end, body = received[connection].partition(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length:")[2].split()[0]) if end else 0
                if end and len(body) == length:
                    good += head.split()[1] in (b"200", b"206")
                    selector.unregister(connection)
        assert not selector.get_map(), "some requests were not answered"
    return good


@pytest.mark.fuzz
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "request_",
    [
        request_to("/metrics"),
        request_to("/status"),
        request_to("/manifest"),
        request_to("/leader"),
        request_to("/readyz"),
        request_to("/segments/data/00000000000000000000", "Range: bytes=0-9"),
    ],
    ids=["metrics", "status", "manifest", "leader", "readyz", "segment"],
)
def test_pages_that_hundreds_ask_for_at_once_hold_the_loop_no_longer_than_a_few(
    leader: tuple[NodeGroup, str], request_: bytes
) -> None:
    group, member = leader
    term = group.status(member).term

    with crowd(group, member) as connections:
        for _ in rounds_of_short_turns(group, [member]):
            end_s = time.monotonic() + FLOOD_S
            while time.monotonic() < end_s:
                for connection in connections:
                    connection.sendall(request_)
                assert answers(connections) == len(connections)

    assert (group.status(member).term, group.master()) == (term, member)
