"""The connections that are open: never too many, and none that says nothing for long."""

import asyncio
import logging
from typing import Final

from dledger_node.remoting.connection import Connection

logger = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 1024
IDLE_CLOSE_S: Final = 120.0  # as Java's remoting
FRAME_CLOSE_S: Final = 30.0
SWEEP_INTERVAL_S: Final = 1.0


class OpenConnections:
    """Counts connections, and closes those that are idle or do not finish a frame."""

    def __init__(self) -> None:
        self._connections: set[Connection] = set()

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, connection: Connection) -> bool:
        """Count a connection; False when there are too many."""
        if len(self._connections) >= CONNECTIONS_MAX:
            logger.warning(
                "%d connections are open; refused %s", CONNECTIONS_MAX, connection.peername
            )
            return False
        self._connections.add(connection)
        return True

    def discard(self, connection: Connection) -> None:
        """Forget a connection."""
        self._connections.discard(connection)

    def close(self) -> None:
        """Close all, each once what was written is sent."""
        for connection in list(self._connections):
            connection.close()

    async def sweep_for_ever(self) -> None:
        """Close, once a second, what has been silent for too long."""
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_S)
            now_s = asyncio.get_running_loop().time()
            for connection in list(self._connections):
                limit_s = FRAME_CLOSE_S if connection.unfinished_bytes else IDLE_CLOSE_S
                if now_s - connection.active_at_s > limit_s:
                    connection.close()
