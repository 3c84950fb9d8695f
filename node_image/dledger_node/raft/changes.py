"""Membership changes: when a leader accepts one, and how it carries it out.

Rules: Raft dissertation, section 4.1, with the correction of 2015: a leader accepts no change
before an entry of its own term is committed. Without that rule, two changes of one member each,
made in different terms, can leave two majorities without a common voter. A new member is added as a
learner, and can be promoted to voter once it has nearly caught up (4.2.1).
"""

from dledger_node.raft import electorate, leader_elector, quorum, transfer
from dledger_node.raft.member_state import Leader, MemberState
from dledger_node.raft.membership import (
    MEMBERS_MAX,
    AddLearner,
    Change,
    Demote,
    MembershipEntry,
    Promote,
    Remove,
    changed,
)
from dledger_node.raft.messages import TakeLeadershipRequest
from dledger_node.raft.proposals import Proposal, RefusalReason
from dledger_node.raft.ready import WriteMembership


def refusal(member: MemberState, leader: Leader, change: Change) -> RefusalReason | None:
    """Return why the leader must refuse a change now; None if it accepts the change."""
    if leader.transfer is not None:
        return RefusalReason.LEADER_TRANSFERRING
    if member.committed_index < leader.noop_index:
        return RefusalReason.TERM_NOT_COMMITTED
    if member.committed_index < member.memberships.last_index:
        return RefusalReason.MEMBERSHIP_CHANGING
    return _invalid_change(member, change) or _unsafe_change(member, leader, change)


def begin(member: MemberState, leader: Leader, change: Change) -> Proposal:
    """Append the new membership, which is in effect at once."""
    membership = changed(member.memberships.current, change)
    index = member.log.end_index + 1
    write = WriteMembership(index=index, term=member.term, membership=membership)
    member.append(write, index, member.term)
    member.adopt_membership(MembershipEntry(index, membership))
    if isinstance(change, AddLearner):
        # Progress from an earlier membership does not count: the member may have a new disk.
        leader.progress.pop(change.member_id, None)
    electorate.update_peers(member, leader, next_index=index)
    return Proposal(first_index=index, last_index=index, term=member.term)


def step_down_if_not_voter(member: MemberState, leader: Leader) -> None:
    """Hand over and become a follower if a committed change made this leader a non-voter."""
    if leader.is_voter or member.committed_index < member.memberships.last_index:
        return
    successor_id = transfer.fittest(member, leader)
    if successor_id is not None:
        member.send(
            TakeLeadershipRequest(sender=member.self_id, receiver=successor_id, term=member.term)
        )
    leader_elector.become_follower(member, member.term, None)


def _invalid_change(member: MemberState, change: Change) -> RefusalReason | None:
    """Return why a change makes no sense for the current membership; None if it does."""
    membership, member_id = member.memberships.current, change.member_id
    votes, learns = member_id in membership.voters, member_id in membership.learners
    known = member_id == member.self_id or member_id in member.config.peers
    match change:
        case AddLearner() if votes or learns:
            return RefusalReason.ALREADY_MEMBER
        case AddLearner() if known and len(membership.members) >= MEMBERS_MAX:
            return RefusalReason.TOO_MANY_MEMBERS
        case AddLearner():
            return None if known else RefusalReason.UNKNOWN_MEMBER
        case Promote() if votes:
            return RefusalReason.ALREADY_MEMBER
        case Demote() if learns:
            return RefusalReason.ALREADY_MEMBER
        case Demote() | Remove() if membership.voters == (member_id,):
            return RefusalReason.LAST_VOTER
        case _:
            return None if votes or learns else RefusalReason.UNKNOWN_MEMBER


def _unsafe_change(member: MemberState, leader: Leader, change: Change) -> RefusalReason | None:
    """Return why a valid change would put availability at risk; None if it would not."""
    if isinstance(change, Promote) and change.member_id != member.self_id:
        progress = leader.progress[change.member_id]
        lag_entries = transfer.lag_entries(member, leader, change.member_id)
        if not progress.knows_promises or lag_entries > member.config.promotion_lag_entries_max:
            return RefusalReason.FALL_BEHIND_TOO_MUCH
    if not isinstance(change, AddLearner):
        voters = changed(member.memberships.current, change).voters
        well_count = sum(_is_healthy(member, leader, voter_id) for voter_id in voters)
        if not quorum.is_majority(well_count, len(voters)):
            return RefusalReason.QUORUM_AT_RISK
    return None


def _is_healthy(member: MemberState, leader: Leader, voter_id: str) -> bool:
    """Return whether a voter has answered within election_ticks, is not joining, and has room."""
    if voter_id == member.self_id:
        return True
    progress = leader.progress[voter_id]
    silent_ticks = member.now_ticks - progress.contact_tick
    keeps_entries = progress.knows_promises and not progress.is_full
    return keeps_entries and silent_ticks < member.config.election_ticks
