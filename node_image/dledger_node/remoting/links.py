"""The links to every possible member. Only those to current members are kept up.

A link is kept up while both ends belong to the group, or did before a change that is not committed
yet. Any other link is opened when there is a message to send. A member that may be added need not
exist, and looking up its address repeatedly would fill the log.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator

from dledger_formats.settings import NodeSettings
from dledger_node.raft.core import Raft
from dledger_node.raft.membership import Membership
from dledger_node.remoting.link_owner import PeerLinkOwner
from dledger_node.remoting.message_kinds import PeerMessage
from dledger_node.remoting.peer_link import PeerLink
from dledger_node.traffic import Traffic

logger = logging.getLogger(__name__)


class Links:
    """One link to each other member of the settings; `in` checks whether there is one."""

    def __init__(
        self,
        owner: PeerLinkOwner,
        settings: NodeSettings,
        core: Raft,
        *,
        uniform: Callable[[float, float], float],
        traffic: Traffic | None = None,
    ) -> None:
        self._self_id = settings.self_id
        self._core = core
        self._links = {
            peer_id: PeerLink(
                owner,
                peer_id,
                address,
                dead_after_ms=2 * settings.election_timeout_ms,
                uniform=uniform,
                traffic=traffic,
            )
            for peer_id, address in settings.known_peers.items()
            if peer_id != settings.self_id
        }
        self._membership: Membership | None = None
        self._changing = False
        self._nowhere: set[str] = set()
        self._incarnations: dict[str, int] = {}
        self.arrange()

    def __contains__(self, peer_id: object) -> bool:
        return peer_id in self._links

    def __iter__(self) -> Iterator[PeerLink]:
        return iter(self._links.values())

    async def run(self) -> None:
        """Keep the links up until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for link in self:
                tasks.create_task(link.run(), name=f"link to {link.peer_id}")

    def send(self, messages: Iterable[PeerMessage]) -> None:
        """Send each message, or drop it if its link is down; the core expects loss."""
        for message in messages:
            self.send_one(message)

    def send_one(self, message: PeerMessage) -> None:
        """Send a message, or drop it if its link is down."""
        link = self._links.get(message.receiver)
        if link is not None:
            link.send(message)
        elif message.receiver not in self._nowhere:
            self._nowhere.add(message.receiver)
            logger.error(
                "%s belongs to the group, but the settings have no address for it: add it to "
                "DLEDGER_ADDABLE_PEERS of %s",
                message.receiver,
                self._self_id,
            )

    def heard_hello(self, peer_id: str, incarnation: int) -> None:
        """Renew the link to a peer whose HELLO shows that it has started again."""
        if self._incarnations.setdefault(peer_id, incarnation) != incarnation:
            self._incarnations[peer_id] = incarnation
            self._links[peer_id].renew()

    def arrange(self) -> None:
        """Decide again which links to keep up; call this after every input to the core."""
        current = self._core.memberships.current
        if current is self._membership and not self._changing:
            return
        possible = self._core.memberships.possible(self._core.committed_index)
        self._membership, self._changing = current, len(possible) > 1
        members = {member_id for membership in possible for member_id in membership.members}
        for link in self:
            link.need(self._self_id in members and link.peer_id in members)

    def up(self) -> dict[str, bool]:
        """Return, for each peer, whether its link is up."""
        return {link.peer_id: link.up for link in self}
