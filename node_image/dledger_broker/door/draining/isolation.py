"""A member that has had no leader for long: its clients should find a better one.

The member serves what it has. Messages that others store do not arrive, so a pull would wait for
nothing, and no message is stored. Others may have a leader meanwhile, but a producer would keep its
connection forever. So the connections of clients that wait for either are cut: of a pull that has
waited for long, and of a request that needs the leader, once that is answered. The client connects
again: to another member, if the group has one address.
"""

import asyncio
import math
from collections import deque
from typing import Final

from dledger_broker.door.calls.call import Channel
from dledger_broker.door.connections.connection import BrokerConnection
from dledger_broker.door.passing_on.to_leader import ToLeader
from dledger_broker.door.reading.pulls import Pulls
from dledger_formats.settings import NodeSettings
from dledger_node.embedding import Member
from dledger_node.remoting.limits import Reason
from dledger_node.slices import Slices

ISOLATED_S: Final = 5.0
"""An election takes less; a pull that came during one must not be disturbed."""


class Isolation:
    """Watches whether there is a leader."""

    def __init__(
        self, settings: NodeSettings, member: Member, pulls: Pulls, to_leader: ToLeader
    ) -> None:
        self._is_alone = len(settings.known_peers) == 1
        self._member = member
        self._pulls = pulls
        self._endings = to_leader.endings
        self._now_s = asyncio.get_running_loop().time
        self._since_s = math.inf
        """Since when there has been no leader."""
        self._answered: list[Channel] = []
        """Connections with requests that no leader took, and that were answered in the time before
        the last tick. They are cut at the next one: a reset would drop an answer that is on its
        way.
        """
        self._to_cut: deque[Channel] = deque()
        self._cutting = Slices(self._cut)

    @property
    def is_isolated(self) -> bool:
        """Whether there has been no leader for so long that clients should go elsewhere."""
        return self._now_s() - self._since_s >= ISOLATED_S

    def tick(self) -> None:
        """End the connections of those that have waited for too long without a leader."""
        answered, self._answered = self._answered, self._endings.take_leaderless()
        if self._is_alone or self._member.leader_id is not None:
            self._since_s = math.inf
            return
        self._since_s = min(self._since_s, self._now_s())
        if self.is_isolated:
            self._pulls.cut_off(self._now_s() - ISOLATED_S)
            self._to_cut.extend(answered)
            self._cutting.begin()

    def _cut(self, count: int) -> bool:
        """Cut up to `count` connections; return whether others are left."""
        for _ in range(min(count, len(self._to_cut))):
            channel = self._to_cut.popleft()
            if isinstance(channel, BrokerConnection):  # else another member answers the client
                channel.cut(Reason.ISOLATED, "this member has no leader; another one may have")
        return bool(self._to_cut)
