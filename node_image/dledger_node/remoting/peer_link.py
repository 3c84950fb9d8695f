"""The link to one peer: the connection that carries this member's requests and answers to it.

A link is one-way, so that the sender notices its loss. Messages that are sent while it is down are
dropped: the core expects loss.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Final

from dledger_formats.net.dialing import dial, reason_of
from dledger_formats.peers import split_address
from dledger_formats.protocol import frames
from dledger_node.remoting.keep_alive import keep_alive
from dledger_node.remoting.link_connection import LinkConnection
from dledger_node.remoting.link_owner import PeerLinkOwner
from dledger_node.remoting.message_kinds import PeerMessage
from dledger_node.traffic import Traffic

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S: Final = 1.0
HELLO_TIMEOUT_S: Final = 2.0
RETRY_DELAY_MIN_S: Final = 0.02
RETRY_DELAY_MAX_S: Final = 0.5
STEADY_S: Final = 1.0
"""If a link lasted less than this, the next attempt waits longer, as it may be lost too."""


class PeerLink:
    """The link to one peer. `run` keeps it up while it is needed."""

    def __init__(
        self,
        owner: PeerLinkOwner,
        peer_id: str,
        address: str,
        *,
        dead_after_ms: int,
        uniform: Callable[[float, float], float],
        traffic: Traffic | None = None,
    ) -> None:
        self.peer_id = peer_id
        self.address = address
        self.dropped = 0
        """How many messages the link did not take (`LinkConnection.send`), or was down for."""
        self._owner = owner
        self._dead_after_ms = dead_after_ms
        self._uniform = uniform
        self._transferred = (traffic or Traffic()).peers
        self._connection: LinkConnection | None = None
        self._connected_s = 0.0
        self._logged_reason = ""
        self._needed = True
        # Set when a retry must not wait any longer.
        self._hurry = asyncio.Event()
        # Set when there is a message to send, or when the link must be kept up.
        self._wanted = asyncio.Event()

    def need(self, needed: bool) -> None:
        """Set whether to keep the link up, or to open it only when there is a message to send."""
        self._needed = needed
        if needed:
            self._wanted.set()

    def renew(self) -> None:
        """Connect again at once, since the peer has started again, perhaps at another address.

        A connection that is younger than `STEADY_S` is kept: it may lead to the new process.
        """
        self._hurry.set()
        connection = self._connection
        now_s = asyncio.get_running_loop().time()
        if connection is not None and now_s - self._connected_s >= STEADY_S:
            connection.close()

    @property
    def up(self) -> bool:
        """Whether the peer has accepted this member's HELLO on the current connection."""
        return self._connection is not None

    def send(self, message: PeerMessage) -> None:
        """Send a message now or when the socket has room, or drop it."""
        if self._connection is None or not self._connection.send(message):
            self.dropped += 1
            self._wanted.set()

    async def run(self) -> None:
        """Connect, and reconnect, until cancelled. Delays grow while the peer cannot be reached or
        closes connections at once.
        """
        delay_s = 0.0
        now_s = asyncio.get_running_loop().time
        while True:
            await self._pause(self._uniform(delay_s / 2, delay_s))
            if not self._needed:
                await self._wanted.wait()
            self._wanted.clear()
            connection = await self._open_unless_renewed()
            if connection is None:
                self._owner.link_lost(self.peer_id)
                delay_s = _longer(delay_s)
                continue
            self._connected_s = now_s()
            self._connection = connection
            self._logged_reason = ""
            self._owner.link_restored(self.peer_id)
            try:
                await connection.lost
            finally:
                self._connection = None
                connection.close()
            delay_s = 0.0 if now_s() - self._connected_s >= STEADY_S else _longer(delay_s)
            self._owner.link_lost(self.peer_id)

    async def _pause(self, delay_s: float) -> None:
        """Wait before the next attempt, at most until the link is renewed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._hurry.wait()
        self._hurry.clear()

    async def _open_unless_renewed(self) -> LinkConnection | None:
        """Connect and send HELLO; return None at once if the link is renewed."""
        opening = asyncio.ensure_future(self._open())
        hurry = asyncio.ensure_future(self._hurry.wait())
        try:
            await asyncio.wait({opening, hurry}, return_when=asyncio.FIRST_COMPLETED)
            return opening.result() if opening.done() else None
        finally:
            for task in (opening, hurry):
                task.cancel()
            await asyncio.gather(opening, hurry, return_exceptions=True)

    async def _open(self) -> LinkConnection | None:
        """Connect and send HELLO. Returns None, and logs the reason, if either fails."""
        connection: LinkConnection | None = None
        try:
            # Not wait_for: before Python 3.12 it may swallow a cancellation, and run forever.
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                connection = await self._connect()
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                await connection.say_hello()
        except (OSError, TimeoutError, frames.FrameError) as error:
            self._tell(reason_of(error) or "timed out")
            if connection is not None:
                connection.close()
            return None
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        return connection

    def _tell(self, reason: str) -> None:
        """Log why there is no link; log the same reason only once."""
        if reason != self._logged_reason:
            logger.info("no link to %s at %s: %s", self.peer_id, self.address, reason)
        self._logged_reason = reason

    async def _connect(self) -> LinkConnection:
        host, port = split_address(self.address)
        transport, connection = await dial(
            lambda: LinkConnection(self._owner, self.peer_id, self._transferred), host, port
        )
        opened: socket.socket | None = transport.get_extra_info("socket")
        if opened is not None:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(opened, self._dead_after_ms)
        return connection


def _longer(delay_s: float) -> float:
    return min(RETRY_DELAY_MAX_S, max(RETRY_DELAY_MIN_S, delay_s * 2))
