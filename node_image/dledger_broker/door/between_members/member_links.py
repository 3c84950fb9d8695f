"""Links from this member to others."""

from dledger_broker.door.between_members.door_link import DoorLink, DoorLinkOwner
from dledger_formats.peers import split_address
from dledger_formats.settings import NodeSettings
from dledger_node.embedding import Member


class MemberLinks:
    """Opens links to other members."""

    def __init__(self, settings: NodeSettings, member: Member) -> None:
        self._addresses = settings.known_peers
        self._member = member

    def open(self, owner: DoorLinkOwner, member_id: str, term: int) -> DoorLink | None:
        """Begin to connect to the leader of a term; return None if its address is not known."""
        address = self._addresses.get(member_id)
        if address is None:
            return None
        link = DoorLink(owner, member_id, term)
        link.open(*split_address(address), self._member.hello(member_id, 0))
        return link
