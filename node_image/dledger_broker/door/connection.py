"""One connection of a RocketMQ client."""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Final

from dledger_formats.rocketmq.message_record import pack_host
from dledger_node.remoting.connection import Connection
from dledger_node.remoting.host import Host, Requests

_LINGER: Final = struct.Struct("ii")
_UNKNOWN_HOST: Final = bytes(8)


class BrokerConnection(Connection):
    """An accepted connection that the kernel resets if this process is killed.

    Clients of 4.9 do not notice the orderly end of a connection: they would wait for the answer to
    a pull until it times out. A reset they notice at once.
    """

    def __init__(
        self, host: Host, requests: Requests, forget: "Callable[[BrokerConnection], None]"
    ) -> None:
        """`forget` is called when the connection is gone."""
        super().__init__(host, requests)
        self.born_host = _UNKNOWN_HOST
        """The client's address, as messages carry it."""
        self._forget = forget
        self._socket: socket.socket | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the client's address."""
        self._socket = transport.get_extra_info("socket")
        self._linger(on=True)
        name = transport.get_extra_info("peername")
        if name:
            self.born_host = pack_host(name[0].partition("%")[0], name[1])
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Forget what waits for this client."""
        self._socket = None
        self._forget(self)
        super().connection_lost(error)

    def take_no_more(self) -> None:
        """Read no further requests: this member stops, and answers those that it has read."""
        self._read_no_more()

    def close(self) -> None:
        """Send what was written, then close, without a reset."""
        self._linger(on=False)
        super().close()

    def end(self) -> None:
        """Send what was written, then end, without a reset."""
        self._linger(on=False)
        super().end()

    def _linger(self, *, on: bool) -> None:
        if self._socket is not None:
            option = _LINGER.pack(int(on), 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)
