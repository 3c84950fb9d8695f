"""Requests of a fake member that wait for an entry."""

import asyncio
from collections.abc import Callable

from dledger_fake_server.connection import Connection


class Followers:
    """The requests that wait, with the connection and the answer of each."""

    def __init__(self) -> None:
        self.is_waiting = asyncio.Event()
        """Set by every request that waits."""
        self._waiting: dict[Callable[[], bytes], Connection] = {}

    def wait(self, connection: Connection, wait_s: float, frame: Callable[[], bytes]) -> None:
        """Send the answer to a request later, at the latest after `wait_s`."""
        self._waiting[frame] = connection
        asyncio.get_running_loop().call_later(wait_s, self._answer, frame)
        self.is_waiting.set()

    def clear(self) -> None:
        """Never answer the requests that wait."""
        self._waiting.clear()

    def answer_all(self) -> None:
        """Answer every waiting request, with or without an entry."""
        for frame in list(self._waiting):
            self._answer(frame)

    def _answer(self, frame: Callable[[], bytes]) -> None:
        connection = self._waiting.pop(frame, None)
        if connection is not None and not connection.transport.is_closing():
            connection.transport.write(frame())
