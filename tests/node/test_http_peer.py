"""The connection to a peer that gives bytes for mending."""

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from dledger_node.healing.http_peer import ASKED_AGAIN_S, TIMEOUT_S, HttpPeer

NAME = "0" * 20
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def hasty_peer() -> Iterator[str]:
    """The address of a peer that closes each connection after one answer, without announcing it."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(ANSWER)

        thread = threading.Thread(target=serve)
        thread.start()
        host, port = listener.getsockname()
        yield f"{host}:{port}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_peer_that_has_closed_an_idle_connection_is_asked_over_a_new_one(
    hasty_peer: str,
) -> None:
    with closing(HttpPeer(hasty_peer)) as peer:
        answers = [peer.stored(NAME, at=0, size=4) for _ in range(3)]

    assert answers == [b"body"] * 3


def test_a_peer_that_does_not_answer_costs_its_timeout_only_from_time_to_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The host may be gone, and many ranges may be damaged: each is asked of every peer in turn."""
    clock, asked = Clock(), list[float]()

    def silent(*_: object, **__: object) -> None:
        asked.append(clock.now_s)
        clock.now_s += TIMEOUT_S
        raise TimeoutError("timed out")

    monkeypatch.setattr(http.client.HTTPConnection, "request", silent)
    peer = HttpPeer("127.0.0.1:1", monotonic_s=clock)
    for _ in range(50):
        with pytest.raises(OSError, match=r"timed out|does not answer"):
            peer.stored(NAME, at=0, size=4)
    assert asked == [100.0]

    clock.now_s += ASKED_AGAIN_S
    with pytest.raises(TimeoutError):
        peer.stored(NAME, at=0, size=4)

    assert len(asked) == 2


def test_a_peer_that_refuses_connections_is_asked_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = 0

    def refused(*_: object, **__: object) -> None:
        nonlocal asked
        asked += 1
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr(http.client.HTTPConnection, "request", refused)
    peer = HttpPeer("127.0.0.1:1")
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            peer.stored(NAME, at=0, size=4)

    assert asked == 3
