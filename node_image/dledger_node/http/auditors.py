"""Checks requests for bodies of entries and for the state, which need the group's audit token.

    Authorization: Bearer TOKEN

A group without an administration token has no audit token either, and anyone may read. Members
read each other's stored bytes to mend their logs. A member of an earlier release sends no token,
and a pod may start before it has one, so these bytes are also sent to the addresses of the members.
"""

import asyncio
import enum
import ipaddress
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

from aiohttp import web

from dledger_node.daemon_call import call_in_daemon
from dledger_node.limited_log import LineBudget

logger = logging.getLogger(__name__)

READ_AGAIN_S: Final = 1.0
"""Minimum time between two reads of the token file for requests that its tokens do not admit."""
RESOLVED_FOR_S: Final = 5.0
RESOLVE_S_MAX: Final = 2.0
_SCHEME: Final = "bearer"


class Lack(enum.StrEnum):
    """Why a request was refused; a label of the metric."""

    MISSING = "missing"
    WRONG = "wrong"
    NOT_READY = "not_ready"


_TEXTS: Final = {
    Lack.MISSING: "this group demands its audit token for this page, and the request has none: "
    "send it as Authorization: Bearer TOKEN (dledger-audit --token-file FILE)",
    Lack.WRONG: "the audit token of this request is not one of this group's: it may have been "
    "replaced, belong to another group, or be the administration token",
    Lack.NOT_READY: "this member demands the audit token and could not read its tokens yet",
}


class Tokens(Protocol):
    """The tokens of the group."""

    @property
    def is_demanded(self) -> bool:
        """Whether requests need a token."""

    def accepts_audit_token(self, token: str) -> bool | None:
        """Return whether this is an audit token of the group; None if no tokens are known yet."""

    def read(self) -> None:
        """Read the tokens if they have changed; blocks for a small read."""


class Auditors:
    """Admits requests for bodies, and counts those that it refuses."""

    def __init__(
        self,
        tokens: Tokens,
        peer_hosts: Iterable[str] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`peer_hosts` are the hosts of the other members."""
        self.refused = Counter[Lack]()
        """How many requests were refused since the start."""
        self._tokens = tokens
        self._peers = _PeerAddresses(frozenset(peer_hosts), clock)
        self._clock = clock
        self._read_s = -READ_AGAIN_S
        self._lines = LineBudget()

    async def check(self, request: web.Request, *, or_a_member: bool = False) -> None:
        """Admit a request that has the audit token, or that comes from a member if `or_a_member`.

        Raises HTTPUnauthorized.
        """
        lack = await self._lack(_token_of(request.headers.get("Authorization", "")))
        if lack is None or (or_a_member and await self._peers.has(request.remote or "")):
            return
        self.refused[lack] += 1
        admitted = self._lines.admit(lack)
        if admitted is not None:
            logger.warning(
                "refused %s to %s: %s%s", request.path, request.remote, _TEXTS[lack], admitted
            )
        raise web.HTTPUnauthorized(
            text=f"{_TEXTS[lack]}\n", headers={"WWW-Authenticate": 'Bearer realm="dledger"'}
        )

    async def _lack(self, token: str) -> Lack | None:
        if not self._tokens.is_demanded:
            return None
        if not token:
            return Lack.MISSING
        accepted = self._tokens.accepts_audit_token(token)
        if not accepted and self._clock() - self._read_s >= READ_AGAIN_S:
            # A member that is out of service does not watch the file.
            self._read_s = self._clock()
            await asyncio.to_thread(self._tokens.read)
            accepted = self._tokens.accepts_audit_token(token)
        if accepted is None:
            return Lack.NOT_READY
        return None if accepted else Lack.WRONG


class _PeerAddresses:
    """The addresses of the other members, which may change while this one runs."""

    def __init__(self, hosts: frozenset[str], clock: Callable[[], float]) -> None:
        self._hosts = hosts
        self._clock = clock
        self._addresses: dict[str, frozenset[str]] = {}
        """The last DNS answer for each host, kept while lookups fail."""
        self._asked_s = -RESOLVED_FOR_S
        self._asking: asyncio.Task[None] | None = None

    async def has(self, address: str) -> bool:
        """Return whether this is the address of a member.

        A loopback address is never a member's: every process of this machine has it.
        """
        plain = _plain(address)
        if _is_loopback(plain):
            return False
        is_asking = self._asking is not None and not self._asking.done()
        if not is_asking and self._clock() - self._asked_s >= RESOLVED_FOR_S:
            self._asked_s = self._clock()
            self._asking = asyncio.create_task(self._ask())
        if self._asking is not None:
            await asyncio.wait([self._asking], timeout=RESOLVE_S_MAX)
        return any(plain in each for each in self._addresses.values())

    async def _ask(self) -> None:
        """Look up all hosts at the same time; a lookup may take longer than any request waits."""
        found = await asyncio.gather(*map(_addresses, self._hosts))
        answers = zip(self._hosts, found, strict=True)
        self._addresses |= {host: addresses for host, addresses in answers if addresses is not None}


async def _addresses(host: str) -> frozenset[str] | None:
    """Return the addresses of a host; None if the lookup fails."""
    lookup = partial(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
    try:
        # A lookup in the loop's own threads would keep a member from ending while the DNS is down.
        found = await call_in_daemon("peer-addresses", lookup)
    except (OSError, UnicodeError):
        return None
    return frozenset(_plain(str(each[4][0])) for each in found)


def _is_loopback(plain: str) -> bool:
    try:
        return ipaddress.ip_address(plain).is_loopback
    except ValueError:
        return False


def _plain(address: str) -> str:
    """Return an address in a uniform format: an IPv4 address may be mapped to an IPv6 one."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def _token_of(header: str) -> str:
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == _SCHEME else ""
