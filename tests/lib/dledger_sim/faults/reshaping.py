"""Membership changes, and the members whose disk may be lost.

A group that lost too many disks is lost whatever its members do. The simulator never causes that,
because no rule would apply to such a group.
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
"""Other voters that a lost volume requires: of two voters, a commit needs both disks."""


def change_of(kind: str, member_id: str) -> Change:
    """Return a change by the name of its kind."""
    return KINDS[kind](member_id)


def likely_kinds(membership: Membership, member_id: str) -> tuple[str, ...]:
    """Return kinds of changes for a member, more likely ones more often."""
    if member_id in membership.voters:
        return ("remove", "remove", "demote")
    return ("promote", "promote", "remove") if member_id in membership.learners else ("add",)


def agree(members: Mapping[str, SimMember], leader: SimMember) -> bool:
    """Return whether all members of the leader's group follow it and have committed its log, and
    the leader pushes to no other member.
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
    """Return whether a majority of the voters would have an intact disk after a change."""
    assert leader.raft is not None
    try:
        voters = changed(leader.raft.membership, change).voters
    except ValueError:
        return True  # the leader refuses it
    with_memory = sum(members[one].disk.has_memory for one in voters)
    return 2 * with_memory > len(voters)


def may_lose_volume(members: Mapping[str, SimMember], first: Membership, member_id: str) -> bool:
    """Return whether the group can lose this member's disk.

    In each log with the member as a voter, all other voters must have intact disks. The last two
    memberships of each log count; earlier ones are committed and replaced.
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
