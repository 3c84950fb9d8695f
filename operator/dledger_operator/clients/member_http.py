"""Client of the members' HTTP API: `/status` and the long poll `/leader`."""

import asyncio
import socket
from collections import OrderedDict
from typing import Final, Self, TypeVar
from urllib.parse import urlencode

import aiohttp

from dledger_formats.http.status import LeaderView, NodeStatus
from dledger_formats.json_objects import FormatError
from dledger_operator import names
from dledger_operator.clients.errors import MemberSilentError

LEADER_WAIT_S: Final = 30
"""How long a member may wait with its answer to a long poll."""
PROBES_AFTER_S: Final = 4
PROBE_INTERVAL_S: Final = 2
PROBES_MAX: Final = 3
DEAD_AFTER_S: Final = PROBES_AFTER_S + PROBES_MAX * PROBE_INTERVAL_S
"""Time after which a long poll ends if its host vanished without closing its connections. The
kernel probes the host, so that this process is not woken for it.
"""
REFUSED_WAIT_S: Final = 0.5
"""Time between two questions to a member that has no place for a long poll."""
ANSWER_S_MAX: Final = 2.0
CONNECT_S_MAX: Final = 1.0
BODY_BYTES_MAX: Final = 256 * 1024
ANSWERS_KEPT_MAX: Final = 1024
ANSWER_KEPT_BYTES_MAX: Final = 16 * 1024

View = TypeVar("View", LeaderView, NodeStatus)


class MemberHttpClient:
    """HTTP client of the members; every request has a timeout."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self._port = port
        self._last: OrderedDict[tuple[type, str], tuple[bytes, LeaderView | NodeStatus]] = (
            OrderedDict()
        )
        """The last answers, raw and decoded: an idle member mostly repeats its answer."""

    @classmethod
    def open(cls, port: int = names.HTTP_PORT) -> Self:
        """Open a connection pool, which the caller must close.

        Each pod has at most two requests in flight, so the number of pods bounds the number of
        connections. A limit here would only make one group wait for another.
        """
        connector = aiohttp.TCPConnector(limit=0, socket_factory=_probing_socket)
        return cls(aiohttp.ClientSession(connector=connector), port)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def status(self, ip: str) -> NodeStatus:
        """Get a member's status. Raises MemberSilentError after at most `ANSWER_S_MAX`."""
        return await self._get(NodeStatus, ip, "/status", ANSWER_S_MAX)

    async def leader(self, ip: str, since: str) -> LeaderView:
        """Wait up to `LEADER_WAIT_S` until the member's leader is no longer `since`.

        An empty `since` is answered at once. So is a long poll for which the member has no place,
        after `REFUSED_WAIT_S`: whoever takes all places must not hide a member. Raises
        MemberSilentError if no answer comes in time.
        """
        if not since:
            return await self._get(LeaderView, ip, "/leader", ANSWER_S_MAX)
        query = urlencode({"since": since, "wait": f"{LEADER_WAIT_S}s"}, safe=":")
        try:
            return await self._get(LeaderView, ip, f"/leader?{query}", LEADER_WAIT_S + ANSWER_S_MAX)
        except _NoPlaceError:
            await asyncio.sleep(REFUSED_WAIT_S)
            return await self._get(LeaderView, ip, "/leader", ANSWER_S_MAX)

    async def _get(self, kind: type[View], ip: str, path: str, total_s: float) -> View:
        host = f"[{ip}]" if ":" in ip else ip
        url = f"http://{host}:{self._port}{path}"
        timeout = aiohttp.ClientTimeout(total=total_s, sock_connect=CONNECT_S_MAX)
        try:
            async with self._session.get(url, timeout=timeout, allow_redirects=False) as answer:
                body = b""
                while len(body) <= BODY_BYTES_MAX and (chunk := await answer.content.readany()):
                    body += chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise MemberSilentError(f"GET {url}: {str(error) or type(error).__name__}") from error
        if answer.status != 200 or len(body) > BODY_BYTES_MAX:
            no_place = answer.status == 503 and "Retry-After" in answer.headers
            raise (_NoPlaceError if no_place else MemberSilentError)(
                f"GET {url}: status {answer.status}, {len(body)} bytes"
            )
        last_body, last = self._last.get((kind, ip), (b"", None))
        if body == last_body and isinstance(last, kind):
            return last
        try:
            view = kind.from_json(body)
        except (FormatError, RecursionError) as error:
            raise MemberSilentError(f"GET {url}: {error}") from error
        self._keep((kind, ip), body, view)
        return view

    def _keep(self, key: tuple[type, str], body: bytes, view: LeaderView | NodeStatus) -> None:
        """Keep an answer of usual size, and drop the oldest one if there are too many."""
        self._last.pop(key, None)
        if len(body) <= ANSWER_KEPT_BYTES_MAX:
            self._last[key] = (body, view)
        if len(self._last) > ANSWERS_KEPT_MAX:
            self._last.popitem(last=False)


class _NoPlaceError(MemberSilentError):
    """The member has no place for a request that waits."""


def _probing_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket whose connection breaks if the other side's host does not answer."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBES_AFTER_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_INTERVAL_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES_MAX)
    # Without this, the kernel retransmits an unanswered request instead of sending probes.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * DEAD_AFTER_S)
    return made
