"""A member's registration at name servers, without its broker."""

import asyncio
import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from dledger_broker.metrics import BrokerCounters
from dledger_broker.registration.name_servers import NameServers
from dledger_broker.registration.register_broker import Standing, Standings
from dledger_broker.settings import BrokerSettings
from dledger_broker.state.broker_state import BrokerState
from dledger_broker.state.tables import TableVersion
from dledger_formats.settings import NodeSettings
from tools.groups.waiting import wait_for

MEMBERS = {"n0": "127.0.0.1:1", "n1": "127.0.0.1:2", "n2": "127.0.0.1:3"}
GROUP_ADDRESS = "127.0.0.1:4"
SETTINGS = BrokerSettings(
    node=NodeSettings(group="g", self_id="n1", peers=MEMBERS, store_base_dir="/nowhere"),
    addresses=MEMBERS,
    name="b",
)


class Registering:
    """Keeps a member registered, without its broker."""

    def __init__(self, *addresses: str, register_members: bool = True) -> None:
        self.counters = BrokerCounters()
        self.standing = Standing(0, MEMBERS["n1"], 1, TableVersion())
        self.group: Standing | None = None
        self._settings = dataclasses.replace(
            SETTINGS,
            name_servers=addresses,
            group_address=GROUP_ADDRESS,
            register_members=register_members,
        )
        self._threads = ThreadPoolExecutor(1)

    async def __aenter__(self) -> Self:
        tables = BrokerState().tables
        self.servers = NameServers(
            self._settings, lambda: Standings(self.standing, self.group), lambda: tables,
            self._threads, self.counters,
        )  # fmt: skip
        self.servers.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.servers.close()
        self._threads.shutdown()

    async def until(self, is_so: Callable[[], bool], what: str) -> None:
        await asyncio.to_thread(wait_for, is_so, what)

    async def until_registered(self) -> None:
        registered = self.counters.registered
        await self.until(lambda: all(registered.values()), "it is registered everywhere")

    def become_keeper(self) -> None:
        """Keep the address of the group, too."""
        self.group = self.standing._replace(broker_id=0, address=GROUP_ADDRESS)
        self.servers.tick()

    def change(self) -> None:
        self.standing = self.standing._replace(term=self.standing.term + 1)
        self.servers.tick()
