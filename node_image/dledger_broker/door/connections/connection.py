"""One connection of a RocketMQ client."""

import asyncio
import contextlib
import fcntl
import socket
import struct
import termios
from collections.abc import Callable
from typing import Final

from dledger_formats.rocketmq.codes import VERSION_5_3_1
from dledger_formats.rocketmq.message_record import pack_host
from dledger_node.remoting.connection import Connection
from dledger_node.remoting.connection_owner import ConnectionOwner, RequestHandler

_LINGER: Final = struct.Struct("ii")
_UNACKNOWLEDGED: Final = struct.Struct("i")
_UNKNOWN_HOST: Final = bytes(8)


class BrokerConnection(Connection):
    """An accepted connection that the kernel resets if this process is killed.

    Clients of 4.9 do not notice the orderly end of a connection: they would wait for the answer to
    a pull until it times out. They notice a reset at once.
    """

    def __init__(
        self,
        owner: ConnectionOwner,
        handler: RequestHandler,
        forget: "Callable[[BrokerConnection], None]",
    ) -> None:
        """`forget` is called when the connection is gone."""
        super().__init__(owner, handler)
        self.born_host = _UNKNOWN_HOST
        """The client's address, as messages carry it."""
        self.client_version = 0
        """The release of the client, as its last request said; 0 before the first one."""
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

    @property
    def knows_go_away(self) -> bool:
        """Whether the client connects again and repeats its request when an answer says GO_AWAY."""
        return self.client_version > VERSION_5_3_1

    def take_no_more(self) -> None:
        """Do nothing: `planned_stop` decides when to stop reading, later than the member."""

    def send_away(self) -> None:
        """Read no further requests: this member stops, and answers those that it has read.

        A client that knows GO_AWAY gets it as the answer to further ones.
        """
        if not self.knows_go_away:
            self._read_no_more()

    def close(self) -> None:
        """Send what was written, then close, without a reset."""
        self._linger(on=False)
        super().close()

    def end(self) -> None:
        """End the connection, with a reset if the client has everything that was written.

        A client of 4.9 does not notice the orderly end of a connection, and waits up to 30 s for
        the answers to what this member has not read.
        """
        if self._has_all():
            self._drop_input()
            if self._transport is not None:
                self._transport.abort()
            return
        self._linger(on=False)
        super().end()

    def _has_all(self) -> bool:
        """Return whether the client's kernel has acknowledged everything that was written."""
        if self._socket is None or self._transport is None:
            return False
        if self._transport.get_write_buffer_size():
            return False
        count = bytearray(_UNACKNOWLEDGED.size)
        with contextlib.suppress(OSError):  # where sockets do not support this
            fcntl.ioctl(self._socket.fileno(), termios.TIOCOUTQ, count)
            return not any(count)
        return False

    def _linger(self, *, on: bool) -> None:
        if self._socket is not None:
            option = _LINGER.pack(int(on), 0)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)
