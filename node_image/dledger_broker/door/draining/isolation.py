"""A member that has had no leader for long: its clients should find a better one.

The member serves what it has. Messages that others store do not arrive, so a pull would wait for
nothing. Its connection is closed, and the client connects again: to another member, if the group
has one address.
"""

import asyncio
import math
from typing import Final

from dledger_broker.door.reading.pulls import Pulls
from dledger_formats.settings import NodeSettings
from dledger_node.embedding import Member

ISOLATED_S: Final = 5.0
"""An election takes less; a pull that came during one must not be disturbed."""


class Isolation:
    """Watches whether there is a leader."""

    def __init__(self, settings: NodeSettings, member: Member, pulls: Pulls) -> None:
        self._is_alone = len(settings.known_peers) == 1
        self._member = member
        self._pulls = pulls
        self._now_s = asyncio.get_running_loop().time
        self._since_s = math.inf
        """Since when there has been no leader."""

    @property
    def is_isolated(self) -> bool:
        """Whether there has been no leader for so long that clients should go elsewhere."""
        return self._now_s() - self._since_s >= ISOLATED_S

    def tick(self) -> None:
        """End the pulls that have waited for too long without a leader."""
        if self._is_alone or self._member.leader_id is not None:
            self._since_s = math.inf
            return
        self._since_s = min(self._since_s, self._now_s())
        if self.is_isolated:
            self._pulls.cut_off(self._now_s() - ISOLATED_S)
