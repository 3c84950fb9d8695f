"""Limits on HTTP connections: their number, their times, and the bytes that they leave unread.

aiohttp limits the length of a request's head, but none of these. So each connection gets a timer:
HEAD_S for its first request and IDLE_S for each later one, no matter how many bytes it sends. The
timer stops while a request is answered, so a long poll may take its minute. While the other side
does not read the answer, another timer runs.

Liveness and readiness probes are always answered. When all places, or all of one address, are
taken, a connection gets one of a few more places, where it may only request a probe's page.

A connection carries one request at a time. No client of these pages sends a body, or a request
before the last one is answered. Without this limit, aiohttp would queue all requests that arrive.
aiohttp gets a request's last bytes once it is the request's turn (`request_turns`).
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, cast

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from dledger_node.http.request_turns import RequestTurns
from dledger_node.traffic import Traffic, Transferred

CONNECTIONS_MAX: Final = 512
"""Enough for the operator, kubelet, Prometheus, auditors, and the maximum number of long polls."""
CONNECTIONS_PER_ADDRESS_MAX: Final = 128
"""Maximum number of connections of one address. Many clients may share it behind a gateway."""
PROBE_PLACES: Final = 16
"""Further connections, for probes only. A new one replaces the oldest, because a probe sends its
request at once.
"""
PROBES: Final = frozenset(("/healthz", "/readyz"))
_PROBE_BEGINNINGS: Final = tuple(f"GET {path} ".encode() for path in PROBES)
HEAD_S: Final = 10.0
IDLE_S: Final = 75.0
UNREAD_S: Final = 30.0
"""Maximum time until the other side has read an answer's next part, of at most 256 KiB."""
GRACE_S: Final = 0.5
"""Extra time after a timer fires: a loop that was delayed first reads what has arrived."""
UNSENT_BYTES_HIGH: Final = 32 * 1024
"""Unsent bytes of one connection above which its answer waits."""
UNSENT_BYTES_MAX: Final = 32 << 20
"""Unsent bytes of all connections that wait. Above this, the one that waits longest is closed."""
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_HEAD_END_BYTES_MAX: Final = 3


class LimitedConnections:
    """The connections of one listener; `middleware` must be the application's first."""

    def __init__(
        self,
        *,
        connections_max: int = CONNECTIONS_MAX,
        connections_per_address_max: int = CONNECTIONS_PER_ADDRESS_MAX,
        unsent_bytes_max: int = UNSENT_BYTES_MAX,
        head_s: float = HEAD_S,
        idle_s: float = IDLE_S,
        unread_s: float = UNREAD_S,
        begin_turn: Callable[[], None] = lambda: None,
        traffic: Traffic | None = None,
    ) -> None:
        """`begin_turn` is called before a connection handles input."""
        self.connections_max = connections_max
        self.connections_per_address_max = connections_per_address_max
        self.unsent_bytes_max = unsent_bytes_max
        self.head_s = head_s
        self.idle_s = idle_s
        self.unread_s = unread_s
        self.begin_turn = begin_turn
        self.transferred = (traffic or Traffic()).http
        self.turns = RequestTurns()
        """When the requests of these connections are handled."""
        self.closed = 0
        """Connections that were refused, or closed because they exceeded a limit."""
        self._open: dict[asyncio.BaseTransport, LimitedConnection] = {}
        self._by_address: Counter[str] = Counter()
        # Connections that may only ask for a probe's page, the oldest first.
        self._only_probes: dict[LimitedConnection, None] = {}
        # Connections that do not read their answers, the longest first, and their unsent bytes.
        self._unread: dict[LimitedConnection, int] = {}

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._open)

    @property
    def middleware(self) -> Middleware:
        """The middleware that stops a connection's timer during a request."""

        @web.middleware
        async def admitted(request: web.Request, handler: Handler) -> web.StreamResponse:
            self.begin_turn()
            connection = self._open.get(cast("asyncio.BaseTransport", request.transport))
            if connection is None:
                return await handler(request)
            connection.stop_timer()
            try:
                if not connection.only_probes:
                    return await handler(request)
                response = await self._probe(request, handler)
                response.force_close()
                return response
            finally:
                connection.next_request(self.idle_s)

        return admitted

    def guard(self, serve: Callable[[], asyncio.BaseProtocol]) -> Callable[[], asyncio.Protocol]:
        """Wrap aiohttp's protocol factory for the listener."""
        return lambda: LimitedConnection(self, cast("asyncio.Protocol", serve()))

    async def _probe(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in PROBES:
            return await handler(request)
        return web.Response(status=503, text="too many connections; only probes are answered\n")

    # -- called by the connections ---------------------------------------------------------------

    def enter(self, connection: "LimitedConnection", transport: asyncio.BaseTransport) -> None:
        """Give a connection a place, or a place for probes only if no other is free."""
        self._open[transport] = connection
        full = len(self._open) - len(self._only_probes) > self.connections_max
        if full or self._by_address[connection.address] >= self.connections_per_address_max:
            connection.only_probes = True
            self._only_probes[connection] = None
            if len(self._only_probes) > PROBE_PLACES:
                self.close(next(iter(self._only_probes)))
        else:
            self._by_address[connection.address] += 1

    def leave(
        self, connection: "LimitedConnection", transport: asyncio.BaseTransport | None
    ) -> None:
        """Forget a connection."""
        self._unread.pop(connection, None)
        self.turns.forget(connection)
        if self._open.pop(cast("asyncio.BaseTransport", transport), None) is None:
            return
        if connection.only_probes:
            self._only_probes.pop(connection, None)
            return
        self._by_address[connection.address] -= 1
        if not self._by_address[connection.address]:
            del self._by_address[connection.address]

    def wait_for_reader(self, connection: "LimitedConnection", unsent_bytes: int) -> None:
        """Count unread bytes; while there are too many, close the connection that waits longest."""
        self._unread[connection] = unsent_bytes
        while self._unread and sum(self._unread.values()) > self.unsent_bytes_max:
            self.close(next(iter(self._unread)))

    def was_read(self, connection: "LimitedConnection") -> None:
        """Stop counting this connection's unsent bytes."""
        self._unread.pop(connection, None)

    def close(self, connection: "LimitedConnection") -> None:
        """Close a connection that exceeds a limit."""
        self.closed += 1
        self._unread.pop(connection, None)
        self._only_probes.pop(connection, None)
        connection.abort()


class CountedTransport:
    """Forwards everything to a transport, and counts the bytes that aiohttp writes."""

    def __init__(self, transport: asyncio.Transport, transferred: Transferred) -> None:
        self._transport = transport
        self._transferred = transferred

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write bytes."""
        self._transferred.sent_bytes += len(data)
        self._transport.write(data)

    def writelines(self, parts: Sequence[bytes]) -> None:
        """Write bytes that lie in several buffers."""
        self._transferred.sent_bytes += sum(map(len, parts))
        self._transport.writelines(parts)


class LimitedConnection(asyncio.Protocol):
    """Forwards everything to aiohttp's protocol, and counts the connection."""

    def __init__(self, connections: LimitedConnections, inner: asyncio.Protocol) -> None:
        self.address = "?"
        """The address of the other side's host."""
        self.only_probes = False
        """Whether this connection may only ask for a probe's page."""
        self._all = connections
        self._inner = inner
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        # The last bytes of the head received so far; None once the head is complete.
        self._head: bytes | None = b""
        self._asks_probe = False

    def abort(self) -> None:
        """Close at once; bytes that wait to be sent are lost."""
        if self._transport is not None:
            self._transport.abort()

    def stop_timer(self) -> None:
        """Stop the timer while a request is handled."""
        if self._timer is not None:
            self._timer.cancel()

    def next_request(self, seconds: float) -> None:
        """Expect the next request within this time; do nothing on a lost connection."""
        if self._transport is None:  # aiohttp goes on with a request whose connection is lost
            return
        self._head = b""
        self.stop_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._start_grace)

    # -- called by the event loop ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        counted = CountedTransport(cast("asyncio.Transport", transport), self._all.transferred)
        self._transport = cast("asyncio.Transport", counted)
        self._transport.set_write_buffer_limits(high=UNSENT_BYTES_HIGH)
        name = transport.get_extra_info("peername")
        if name:
            self.address = name[0]
        self._inner.connection_made(self._transport)
        self.next_request(self._all.head_s)
        self._all.enter(self, self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.stop_timer()
        self._stop_unread_timer()
        self._all.leave(self, self._transport)
        self._transport = None
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._all.begin_turn()
        self._all.transferred.received_bytes += len(data)
        if not self._head:
            self._asks_probe = data.startswith(_PROBE_BEGINNINGS)
        if not self._is_of_one_head(data):
            self._all.close(self)
        elif self._head is None:
            handle = partial(self._inner.data_received, data)
            self._all.turns.submit(self, handle, is_probe=self._asks_probe)
        else:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        self._unread_timer = loop.call_later(self._all.unread_s, self._start_unread_grace)
        self._inner.pause_writing()
        self._all.wait_for_reader(self, self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._stop_unread_timer()
        self._all.was_read(self)
        self._inner.resume_writing()

    # -- helpers ---------------------------------------------------------------------------------

    def _is_of_one_head(self, data: bytes) -> bool:
        """Return whether the data is at most the rest of one request's head."""
        if self._head is None:
            return False
        arrived = self._head + data
        end = _HEAD_END.search(arrived)
        self._head = None if end else arrived[1 - _HEAD_END_BYTES_MAX :]
        return end is None or end.end() == len(arrived)

    def _start_grace(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(GRACE_S, self._all.close, self)

    def _start_unread_grace(self) -> None:
        loop = asyncio.get_running_loop()
        self._unread_timer = loop.call_later(GRACE_S, self._all.close, self)

    def _stop_unread_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
