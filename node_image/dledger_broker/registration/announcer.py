"""Keeps up to date what clients and name servers know of this member, and of the group.

The leader registers the address of all members; while no leader is known, every member does. A name
server drops it when the connection ends over which it was last registered. So as soon as the link
to the leader breaks, its followers register it, without waiting for another leader; a leader does
so when its link to any member breaks. Equal registrations of one address do not disturb each other.
"""

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from dledger_broker.metrics import BrokerCounters
from dledger_broker.registration.addresses import Addresses
from dledger_broker.registration.name_servers import NameServers
from dledger_broker.registration.register_broker import Standing, Standings
from dledger_broker.settings import BrokerSettings
from dledger_broker.state.broker_state import BrokerState
from dledger_node.embedding import Member

GONE_S: Final = 5.0
"""How long a leader whose link has broken counts as gone. A new one is elected sooner."""
AGAIN_S: Final = 8.0
"""The time after which a leader that has lost a member registers the address again. The lost member
may have registered it meanwhile, until it has known no leader for 5 s, and may end any time later.
"""


class LeaderState(Protocol):
    """What the announcer needs to know of the member's state."""

    @property
    def is_proven(self) -> bool:
        """Whether this member leads and has proved it."""

    @property
    def state(self) -> BrokerState:
        """The state up to the applied index."""


class Announcer:
    """Looks up the address of all members, and keeps this member registered at name servers."""

    def __init__(
        self,
        settings: BrokerSettings,
        addresses: Addresses,
        member: Member,
        owner: LeaderState,
        threads: ThreadPoolExecutor,
        counters: BrokerCounters,
        is_isolated: Callable[[], bool],
    ) -> None:
        """`is_isolated` returns whether this member has had no leader for long."""
        self._is_isolated = is_isolated
        self._addresses = addresses
        self._member = member
        self._owner = owner
        self._now_s = asyncio.get_running_loop().time
        self._gone: tuple[str, int] | None = None
        """The leader whose link has broken, and its term."""
        self._gone_until_s = -math.inf
        self._again_s = math.inf
        self._name_servers = NameServers(
            settings, self._standings, lambda: owner.state.tables, threads, counters
        )
        self._following: asyncio.Task[None] | None = None
        member.call_when_link_lost(self._link_lost)

    def start(self) -> None:
        """Look up and register from now on."""
        self._following = asyncio.create_task(self._addresses.follow())
        self._name_servers.start()

    def tick(self) -> None:
        """Register changes at name servers soon."""
        if self._now_s() >= self._again_s:
            self._again_s = math.inf
            self._name_servers.repeat_group()
        self._name_servers.tick()

    def leave(self) -> None:
        """Let name servers forget this member; the next leader registers the group's address."""
        self._name_servers.leave()

    def close(self) -> None:
        """Stop registering; name servers forget this member as the connections close."""
        if self._following is not None:
            self._following.cancel()
        self._name_servers.close()

    async def closed(self) -> None:
        """Return once the connections to name servers are closed, a second later at most."""
        await self._name_servers.closed()

    def _link_lost(self, member_id: str) -> None:
        """Record that the connection to another member has broken."""
        now_s = self._now_s()
        if member_id == self._member.leader_id:
            self._gone, self._gone_until_s = (member_id, self._member.term), now_s + GONE_S
        self._again_s = now_s + AGAIN_S
        self._name_servers.repeat_group()

    def _standings(self) -> Standings:
        """Return what name servers should know."""
        leads, term = self._owner.is_proven, self._member.term
        topics = self._owner.state.tables.topics_version
        own = Standing(*self._addresses.own_record(leads=leads), term, topics)
        group = self._addresses.group_record(is_wanted=leads or self._has_no_leader())
        return Standings(own, None if group is None else Standing(*group, term, topics))

    def _has_no_leader(self) -> bool:
        """Return whether the leader is gone, or none is known but one was until a moment ago.

        A member that has had no leader for long may be the only one, and must not take the address
        of the others along when it dies.
        """
        leader_id = self._member.leader_id
        if leader_id is None:
            return not self._is_isolated()
        is_gone = self._gone == (leader_id, self._member.term)
        return is_gone and self._now_s() < self._gone_until_s
