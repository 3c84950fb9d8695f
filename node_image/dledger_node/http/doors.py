"""Who may hold an HTTP connection, and for how long without asking anything.

aiohttp bounds the length of a head, and not the time it takes, nor the number of connections. So
each connection passes through a door: it has HEAD_S for its first request and IDLE_S for each one
after, however many bytes it sends meanwhile. While a request is being answered no time is counted:
a long poll may take its minute.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

CONNECTIONS_MAX: Final = 512
"""The operator, kubelet, Prometheus, auditors and as many long polls as are allowed."""
HEAD_S: Final = 10.0
IDLE_S: Final = 75.0
LAST_LOOK_S: Final = 0.5
"""After a time is over: a loop that was held up reads first what came meanwhile."""


class Doors:
    """The connections of one listener; `middleware` must be the application's first."""

    def __init__(
        self,
        *,
        connections_max: int = CONNECTIONS_MAX,
        head_s: float = HEAD_S,
        idle_s: float = IDLE_S,
    ) -> None:
        self.connections_max = connections_max
        self.head_s = head_s
        self.idle_s = idle_s
        self.closed = 0
        """Connections that were refused, or closed because their time was over."""
        self._timers: dict[asyncio.BaseTransport, asyncio.TimerHandle | None] = {}

    @property
    def connections(self) -> int:
        """Open ones."""
        return len(self._timers)

    @property
    def middleware(self) -> Middleware:
        """Tells when a request begins and ends."""

        @web.middleware
        async def in_hand(request: web.Request, handler: Handler) -> web.StreamResponse:
            transport = request.transport
            self._stop_timer(transport)
            try:
                return await handler(request)
            finally:
                self._start_timer(transport, self.idle_s)

        return in_hand

    def guard(self, serve: Callable[[], asyncio.BaseProtocol]) -> Callable[[], asyncio.Protocol]:
        """A protocol factory for the listener, around aiohttp's own."""
        return lambda: _Door(self, cast("asyncio.Protocol", serve()))

    def enter(self, transport: asyncio.Transport) -> None:
        """Count a connection and begin its time; too many are closed at once."""
        if len(self._timers) >= self.connections_max:
            self.closed += 1
            transport.abort()
            return
        self._timers[transport] = None
        self._start_timer(transport, self.head_s)

    def leave(self, transport: asyncio.BaseTransport | None) -> None:
        """Forget a connection."""
        self._stop_timer(transport)
        self._timers.pop(cast("asyncio.BaseTransport", transport), None)

    def _start_timer(self, transport: asyncio.BaseTransport | None, seconds: float) -> None:
        if transport in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[transport] = loop.call_later(seconds, self._look, transport)

    def _stop_timer(self, transport: asyncio.BaseTransport | None) -> None:
        timer = self._timers.get(cast("asyncio.BaseTransport", transport))
        if timer is not None:
            timer.cancel()

    def _look(self, transport: asyncio.BaseTransport) -> None:
        loop = asyncio.get_running_loop()
        self._timers[transport] = loop.call_later(LAST_LOOK_S, self._cut, transport)

    def _cut(self, transport: asyncio.BaseTransport) -> None:
        self.closed += 1
        cast("asyncio.Transport", transport).abort()


class _Door(asyncio.Protocol):
    """Passes everything on to aiohttp's protocol."""

    def __init__(self, doors: Doors, inner: asyncio.Protocol) -> None:
        self._doors = doors
        self._inner = inner
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._inner.connection_made(transport)
        self._doors.enter(cast("asyncio.Transport", transport))

    def connection_lost(self, exc: Exception | None) -> None:
        self._doors.leave(self._transport)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
