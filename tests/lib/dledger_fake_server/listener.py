"""Where a member listens: on a port that stays its own while it is stopped."""

import asyncio
import socket
from collections.abc import Callable

from dledger_fake_server.connection import Connection
from dledger_wire.accepting import close_accepting

HOST = "127.0.0.1"


class Listener:
    """The listening socket of a member."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._kept: socket.socket | None = None
        """Has the port while nothing listens there: else another process may listen on it."""

    async def open(self, protocol: Callable[[], Connection], port: int) -> int:
        """Listen on this port, or on a free one if it is 0; return the port."""
        listening, self._kept = self._kept or bound(port), None
        self._server = await asyncio.get_running_loop().create_server(protocol, sock=listening)
        return int(listening.getsockname()[1])

    async def close(self, connections: set[Connection]) -> None:
        """Refuse connections from now on, and reset those that were accepted."""
        if self._server is None:
            return
        port = self._server.sockets[0].getsockname()[1]
        await close_accepting(self._server)
        for connection in list(connections):
            connection.transport.abort()
            await connection.gone.wait()
        await self._server.wait_closed()
        self._server, self._kept = None, bound(port)

    def give_port_back(self) -> None:
        """Leave the port to other processes."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None


def bound(port: int) -> socket.socket:
    """Return a socket with this port, or with a free one, on which nothing listens yet."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((HOST, port))
    return made
