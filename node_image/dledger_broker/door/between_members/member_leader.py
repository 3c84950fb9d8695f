"""The leader, as this member knows it."""

from dledger_broker.door.between_members.known_leader import LeaderTerm
from dledger_broker.leading.log_owner import LogOwner
from dledger_node.embedding import Member


class MemberLeader:
    """What the member knows of the leader, as a `known_leader.KnownLeader`."""

    def __init__(self, member: Member, owner: LogOwner) -> None:
        self._member = member
        self._owner = owner

    @property
    def is_proven(self) -> bool:
        """Whether this member leads, and knows all that was acknowledged before its term."""
        return self._owner.is_proven

    @property
    def leads(self) -> bool:
        """Whether this member leads, ready or not."""
        return self._member.leads

    @property
    def leader(self) -> LeaderTerm | None:
        """The leader and its term; None if this member knows none."""
        leader_id = self._member.leader_id
        return None if leader_id is None else (leader_id, self._member.term)
