"""Where this member accepts clients: at its own port, and at the group's if members share one.

Members on one machine share a port by SO_REUSEPORT. The kernel gives each new connection to one of
the listening members. A member that is gone no longer listens, so a client that connects again
reaches a live one at once. A member that is being killed stops listening before it resets its
clients (`listening_sockets`).
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Protocol

from dledger_broker.door.connections import listening_sockets
from dledger_broker.settings import BrokerSettings
from dledger_node.config import join_address
from dledger_node.errors import ListenError
from dledger_node.limited_log import LineBudget

logger = logging.getLogger(__name__)


class AcceptAt(Protocol):
    """Begins to accept connections."""

    async def __call__(
        self,
        accept: Callable[[], asyncio.Protocol],
        host: str | None,
        port: int,
        *,
        is_shared: bool,
    ) -> list[asyncio.Server]:
        """See `listening_sockets.accept_at`."""


class Listeners:
    """The listening sockets of one member."""

    def __init__(
        self,
        settings: BrokerSettings,
        accept: Callable[[], asyncio.Protocol],
        accept_at: AcceptAt = listening_sockets.accept_at,
    ) -> None:
        """`accept` makes the protocol of a new connection."""
        self._accept_at = accept_at
        self._name = settings.name
        self._host = settings.node.listen_host
        self._own_port = settings.own_address[1]
        self._shared_port = settings.shared_port
        self._accept = accept
        self._own: list[asyncio.Server] = []
        self._shared: list[asyncio.Server] = []
        self._has_opened = self._has_closed = False
        self._log = LineBudget()

    @property
    def is_open(self) -> bool:
        """Whether clients are accepted: every port is bound, and this member is not stopping."""
        return self._has_opened and not self._has_closed

    async def open(self) -> None:
        """Listen at every port. Raises ListenError."""
        self._own = await self._listen(self._own_port, is_shared=False)
        if self._shared_port is not None:
            self._shared = await self._listen(self._shared_port, is_shared=True)
        self._has_opened = True
        logger.info("the broker %s is listening on port %d", self._name, self._own_port)

    async def share(self, *, is_wanted: bool) -> None:
        """Listen at the shared port if new clients are wanted, else leave it to the others."""
        if self._shared_port is None or self._has_closed:
            return
        if not is_wanted:
            _close(self._shared)
        elif not self._shared:
            try:
                self._shared = await self._listen(self._shared_port, is_shared=True)
            except ListenError as error:
                if (left_out := self._log.admit("share")) is not None:
                    logger.warning("%s; trying again%s", error, left_out)

    def leave(self) -> None:
        """Leave new clients at the shared port to the other members: this one stops."""
        self._has_closed = True
        _close(self._shared)

    def close(self) -> None:
        """Accept no further clients."""
        self._has_closed = True
        _close(self._own)
        _close(self._shared)

    async def _listen(self, port: int, *, is_shared: bool) -> list[asyncio.Server]:
        """Listen at every address of the host. Raises ListenError."""
        can_share = is_shared and hasattr(socket, "SO_REUSEPORT")
        try:
            servers = await self._accept_at(
                self._accept, self._host or None, port, is_shared=can_share
            )
        except OSError as error:
            where = join_address(self._host, port)
            raise ListenError(f"cannot listen on {where}: {error}") from error
        if self._has_closed:  # while it was being bound
            _close(servers)
        return servers


def _close(servers: list[asyncio.Server]) -> None:
    while servers:
        servers.pop().close()
