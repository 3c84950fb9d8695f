"""Limits on the number of HTTP connections and on the time between their requests.

aiohttp limits the length of a request head, but not the time that it takes, nor the number of
connections. So each connection gets a timer: HEAD_S for its first request and IDLE_S for each later
one, no matter how many bytes it sends. The timer stops while a request is answered, so a long poll
may take its minute.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

CONNECTIONS_MAX: Final = 512
"""Enough for the operator, kubelet, Prometheus, auditors, and the maximum number of long polls."""
HEAD_S: Final = 10.0
IDLE_S: Final = 75.0
GRACE_S: Final = 0.5
"""Extra time after a timer fires: a loop that was delayed first reads what has arrived."""


class Doors:
    """The connections of one listener; `middleware` must be the application's first."""

    def __init__(
        self,
        *,
        connections_max: int = CONNECTIONS_MAX,
        head_s: float = HEAD_S,
        idle_s: float = IDLE_S,
        begin_turn: Callable[[], None] = lambda: None,
    ) -> None:
        """`begin_turn` is called before a connection handles input."""
        self.connections_max = connections_max
        self.head_s = head_s
        self.idle_s = idle_s
        self.begin_turn = begin_turn
        self.closed = 0
        """Connections that were refused, or closed because they timed out."""
        self._timers: dict[asyncio.BaseTransport, asyncio.TimerHandle | None] = {}

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._timers)

    @property
    def middleware(self) -> Middleware:
        """The middleware that stops a connection's timer during a request."""

        @web.middleware
        async def without_timer(request: web.Request, handler: Handler) -> web.StreamResponse:
            transport = request.transport
            self._stop_timer(transport)
            try:
                return await handler(request)
            finally:
                self._start_timer(transport, self.idle_s)

        return without_timer

    def guard(self, serve: Callable[[], asyncio.BaseProtocol]) -> Callable[[], asyncio.Protocol]:
        """Wrap aiohttp's protocol factory for the listener."""
        return lambda: _Door(self, cast("asyncio.Protocol", serve()))

    def enter(self, transport: asyncio.Transport) -> None:
        """Count a connection and start its timer, or close it if there are too many."""
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
            self._timers[transport] = loop.call_later(seconds, self._start_grace, transport)

    def _stop_timer(self, transport: asyncio.BaseTransport | None) -> None:
        timer = self._timers.get(cast("asyncio.BaseTransport", transport))
        if timer is not None:
            timer.cancel()

    def _start_grace(self, transport: asyncio.BaseTransport) -> None:
        loop = asyncio.get_running_loop()
        self._timers[transport] = loop.call_later(GRACE_S, self._close, transport)

    def _close(self, transport: asyncio.BaseTransport) -> None:
        self.closed += 1
        cast("asyncio.Transport", transport).abort()


class _Door(asyncio.Protocol):
    """Forwards everything to aiohttp's protocol, and reports the connection to `Doors`."""

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
        self._doors.begin_turn()
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
