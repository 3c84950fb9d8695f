"""Keeps up to date what clients and name servers are told of this member."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from dledger_broker.metrics import BrokerCounters
from dledger_broker.names.addresses import Addresses
from dledger_broker.names.name_servers import NameServers
from dledger_broker.names.registration import Standing
from dledger_broker.settings import BrokerSettings
from dledger_broker.state.broker_state import BrokerState
from dledger_node.embedding import Member


class Owner(Protocol):
    """What is told of the log's owner."""

    @property
    def is_proven(self) -> bool:
        """Whether this member leads and has proved it."""

    @property
    def state(self) -> BrokerState:
        """The state up to the applied index."""


class Announcer:
    """Looks the address of all members up, and keeps this member registered at name servers."""

    def __init__(
        self,
        settings: BrokerSettings,
        addresses: Addresses,
        member: Member,
        owner: Owner,
        threads: ThreadPoolExecutor,
        counters: BrokerCounters,
        is_isolated: Callable[[], bool],
    ) -> None:
        """`is_isolated` tells whether this member has had no leader for long."""
        self._is_isolated = is_isolated
        self._addresses = addresses
        self._member = member
        self._owner = owner
        self._name_servers = NameServers(
            settings, self._standing, lambda: owner.state.tables, threads, counters
        )
        self._following: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look up and register from now on."""
        self._following = asyncio.create_task(self._addresses.follow())
        self._name_servers.start()

    def tick(self) -> None:
        """Tell name servers soon what has changed."""
        self._name_servers.tick()

    def close(self) -> None:
        """Register no longer; name servers forget this member as the connections close."""
        if self._following is not None:
            self._following.cancel()
        self._name_servers.close()

    async def closed(self) -> None:
        """Return once the connections to name servers are closed, a second later at most."""
        await self._name_servers.closed()

    def _standing(self) -> Standing:
        """Return what name servers should know."""
        broker_id, address = self._addresses.registered(
            leads=self._owner.is_proven,
            leader_id=self._member.leader_id,
            is_isolated=self._is_isolated(),
        )
        topics = self._owner.state.tables.topics_version
        return Standing(broker_id, address, self._member.term, topics)
