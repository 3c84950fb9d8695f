"""The connection to a peer that gives bytes for mending."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from dledger_node.healing.peer_bytes import HttpPeer

NAME = "0" * 20
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"


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
