"""Where clients find the members, as published in routes, at name servers and in messages.

The leader's own address is that of the broker with id 0, unless the group has an address behind
which any member may answer: a Service of Kubernetes. Then the group's address has id 0, whichever
member leads, and no client has to learn of a new leader.

Clients get IPs, since messages carry them and some clients look up no names. The IP of a Service
changes if the Service is deleted, so its name is looked up regularly. Until that has succeeded
once, a member publishes its own address: it passes requests on like any other.
"""

import asyncio
import logging
import socket
from ipaddress import ip_address
from typing import Final

from dledger_broker.settings import BrokerSettings
from dledger_formats.net.dialing import reason_of
from dledger_formats.peers import split_address
from dledger_formats.rocketmq.message_record import pack_host
from dledger_formats.rocketmq.names import MASTER_ID
from dledger_node.config import join_address
from dledger_node.limited_log import LineBudget

logger = logging.getLogger(__name__)

REFRESH_S: Final = 10.0
RETRY_S: Final = 1.0


class Addresses:
    """The addresses that this member publishes to clients and name servers."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._own = settings.addresses[settings.node.self_id]
        self._ids = sorted({*settings.addresses, *settings.node.known_peers}, key=_place_of)
        self._log = LineBudget()
        self._shared = ""
        self._host, self._port, self._is_name = "", 0, False
        if settings.group_address:
            self._shared = self._own
            self._host, self._port = split_address(settings.group_address)
            self._is_name = not _is_ip(self._host)
            if not self._is_name:
                self._shared = join_address(self._host, self._port)
        self._store_host = self._packed()

    @property
    def published(self) -> str:
        """The address that is published to clients: that of all members, or this member's own."""
        return self._shared or self._own

    def store_host(self) -> bytes:
        """Return the address that new messages carry, by which their ids lead to a member."""
        return self._store_host

    def route(self, leader_id: str | None) -> dict[str, str]:
        """Return the addresses of the broker by broker id.

        An address of all members has id 0, whichever member leads, and every member whose own
        address is known has its ordinal + 1. Otherwise the leader has id 0, and the others have
        their ordinal + 1. Without a leader there is then no id 0, so clients ask again before they
        send.
        """
        known = self._settings.addresses
        if self._shared:
            others = known if len(known) == len(self._ids) > 1 else {}
            return {str(MASTER_ID): self._shared} | {
                str(self._ordinal_id(member)): address for member, address in others.items()
            }
        return {
            str(MASTER_ID if member == leader_id else self._ordinal_id(member)): address
            for member, address in known.items()
        }

    def own_record(self, *, leads: bool) -> tuple[int, str]:
        """Return the broker id and the address under which this member registers itself.

        Next to an address of all members, the id is always its ordinal + 1.
        """
        own_id = self._ordinal_id(self._settings.node.self_id)
        if self._shared not in ("", self._own):
            return own_id, self._own
        return MASTER_ID if leads else own_id, self._own

    def group_record(self, *, is_wanted: bool) -> tuple[int, str] | None:
        """Return the id and the address of all members, if there is one that is to be registered.

        A name server would drop this member's own record if the same address got another id.
        """
        if not is_wanted or self._shared in ("", self._own):
            return None
        return MASTER_ID, self._shared

    async def follow(self) -> None:
        """Look up the name of the group's address regularly, until cancelled."""
        while self._is_name:
            pause_s = REFRESH_S if await self._look_up() else RETRY_S
            await asyncio.sleep(pause_s)

    async def _look_up(self) -> bool:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except OSError as error:
            if (left_out := self._log.admit("lookup")) is not None:
                logger.warning(
                    "cannot look up %s, the address of all members: %s; clients get %s%s",
                    self._host, reason_of(error), self._shared, left_out,
                )  # fmt: skip
            return False
        addresses = [join_address(str(address[0]), self._port) for *_, address in found]
        if addresses and self._shared not in addresses:
            self._shared = addresses[0]
            self._store_host = self._packed()
            logger.info("clients get the address %s of %s", self._shared, self._host)
        return bool(addresses)

    def _ordinal_id(self, member: str) -> int:
        return 1 + self._ids.index(member)

    def _packed(self) -> bytes:
        return pack_host(*split_address(self.published))


def _place_of(member: str) -> tuple[str, int, str]:
    """Return where a member comes among all: the numbers at the end of names are compared as
    numbers, so that one more member does not change the ids of the others.
    """
    name = member.rstrip("0123456789")
    return name, int(member[len(name) :] or -1), member


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
