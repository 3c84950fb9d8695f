"""Changes of the membership from outside, and who may lose its disk meanwhile.

A group from which too many disks are gone is lost, whatever its members do; the simulator does not
go that far, since nothing could be judged there.
"""

from collections.abc import Mapping

from dledger_node.raft.membership import (
    AddLearner,
    Change,
    Demote,
    Membership,
    Promote,
    Remove,
    changed,
)
from dledger_sim.group.member import SimMember
from dledger_sim.group.membership_bodies import membership_of

KINDS: Mapping[str, type[Change]] = {
    "add": AddLearner,
    "promote": Promote,
    "demote": Demote,
    "remove": Remove,
}
VOLUME_PEERS_MIN = 2
"""Of two voters, neither may lose its volume: all that is committed needs both."""


def change_of(kind: str, member_id: str) -> Change:
    """A change by its word."""
    return KINDS[kind](member_id)


def likely_kinds(membership: Membership, member_id: str) -> tuple[str, ...]:
    """What can be done with a member as somebody knows it."""
    if member_id in membership.voters:
        return ("remove", "remove", "demote")
    return ("promote", "promote", "remove") if member_id in membership.learners else ("add",)


def agree(members: Mapping[str, SimMember], leader: SimMember) -> bool:
    """Whether all members of the leader's group follow it and hold its log, committed; and it
    pushes to nobody else.
    """
    raft = leader.raft
    assert raft is not None
    member_ids = raft.membership.members
    for member in (members[member_id] for member_id in member_ids):
        if (
            member.raft is None
            or member.committed_index != raft.ledger_end_index
            or member.raft.leader_id != leader.member_id
            or member.raft.joining
        ):
            return False
    return leader.member_id in member_ids and raft.match_indexes().keys() <= set(member_ids)


def leaves_enough(members: Mapping[str, SimMember], leader: SimMember, change: Change) -> bool:
    """Whether most voters would have a memory after a change."""
    assert leader.raft is not None
    try:
        voters = changed(leader.raft.membership, change).voters
    except ValueError:
        return True  # it will be refused
    with_memory = sum(members[one].disk.has_memory for one in voters)
    return 2 * with_memory > len(voters)


def may_lose_volume(members: Mapping[str, SimMember], first: Membership, member_id: str) -> bool:
    """Whether this member is no voter in any log, or all other voters there have their memory.

    Of each log, its last two memberships count: the others are committed and replaced.
    """
    for one in members.values():
        indexes = one.disk.membership_indexes
        last_two = [membership_of(one.disk.cached[at].body) for at in indexes[-2:]]
        for membership in last_two if len(indexes) > 1 else [first, *last_two]:
            others = [voter for voter in membership.voters if voter != member_id]
            blank = any(not members[voter].disk.has_memory for voter in others)
            if len(others) < len(membership.voters) and (blank or len(others) < VOLUME_PEERS_MIN):
                return False
    return True
