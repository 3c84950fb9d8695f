"""The leader, as this member knows it, and the way to reach it."""

from dledger_broker.door.between_members.door_link import DoorLink, LinkOwner
from dledger_broker.leading.log_owner import LogOwner
from dledger_formats.settings import NodeSettings
from dledger_node.config import split_address
from dledger_node.embedding import Member


class Leadership:
    """Implements `leadership.Leadership` for a member."""

    def __init__(self, member: Member, owner: LogOwner) -> None:
        self._member = member
        self._owner = owner

    @property
    def is_proven(self) -> bool:
        """Whether this member leads, and knows all that was acknowledged before it did."""
        return self._owner.is_proven

    @property
    def leads(self) -> bool:
        """Whether this member leads; it need not be ready."""
        return self._member.leads

    @property
    def leader(self) -> tuple[str, int] | None:
        """The leader and its term; None if this member knows none."""
        leader_id = self._member.leader_id
        return None if leader_id is None else (leader_id, self._member.term)


class MemberLinks:
    """Opens links to other members."""

    def __init__(self, settings: NodeSettings, member: Member) -> None:
        self._addresses = settings.known_peers
        self._member = member

    def open(self, owner: LinkOwner, member_id: str, term: int) -> DoorLink | None:
        """Begin to connect to the leader of a term; return None if its address is not known."""
        address = self._addresses.get(member_id)
        if address is None:
            return None
        link = DoorLink(owner, member_id, term)
        link.open(*split_address(address), self._member.hello(member_id, 0))
        return link
