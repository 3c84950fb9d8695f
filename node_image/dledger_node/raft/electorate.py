"""The voters, and the peers that a leader pushes to, by the membership that a member knows.

Rules: Raft dissertation, sections 4.1, 4.2.1 and 4.2.2. The candidate decides which votes count. A
member judges a candidate by term and log alone, even if by its own membership the candidate or the
member itself is not a voter: the candidate may know a newer membership in which both are voters,
and may need this vote to be elected.
"""

from dledger_node.raft.member_state import Leader, MemberState
from dledger_node.raft.progress import Progress


def other_voters(member: MemberState) -> list[str]:
    """Return the voters that a candidate asks: all but itself."""
    voters = member.memberships.current.voters
    return [voter_id for voter_id in voters if voter_id != member.self_id]


def own_votes(member: MemberState) -> set[str]:
    """Return the votes that a candidate starts with: its own, unless it is not a voter."""
    return {member.self_id} if member.is_voter else set()


def belongs(member: MemberState, member_id: str) -> bool:
    """Return whether an id is a member, or was one before a change that is not committed yet."""
    possible = member.memberships.possible(member.committed_index)
    return any(member_id in membership.members for membership in possible)


def may_campaign(member: MemberState) -> bool:
    """Return whether this member may stand for election.

    A voter that is being removed may do so: until its removal is committed, it can be the only
    member whose log is up to date (Raft dissertation, 4.2.2). Once it knows of the commit, it does
    not stand. A member that lacks entries which it confirmed does not stand either.
    """
    if member.promised_end is not None:
        return False
    possible = member.memberships.possible(member.committed_index)
    return any(member.self_id in membership.voters for membership in possible)


def update_peers(member: MemberState, leader: Leader, next_index: int) -> None:
    """Track progress for all members of the group, and mark its voters.

    A peer that is being removed stays until `stop_pushing_to_removed`. `next_index` is the first
    next_index of a new peer.
    """
    possible = member.memberships.possible(member.committed_index)
    peer_ids = {one for membership in possible for one in membership.members} - {member.self_id}
    voters = member.memberships.current.voters
    known, leader.progress = leader.progress, {}
    for peer_id in sorted(peer_ids | known.keys()):
        progress = known.get(peer_id) or Progress(
            next_index=next_index,
            contact_tick=member.now_ticks,
            answered_round=leader.heartbeat_round,  # answers to earlier rounds do not count
        )
        progress.is_voter = peer_id in voters
        leader.progress[peer_id] = progress
    leader.is_voter = member.is_voter
    leader.push_due = True


def stop_pushing_to_removed(member: MemberState, leader: Leader) -> None:
    """Drop removed peers that hold their removal's entry, or have been silent for election_ticks.

    Called after each heartbeat round, so that the last round informs them that their removal
    is committed.
    """
    index = member.memberships.last_index
    if not member.memberships.changed or index > member.committed_index:
        return
    members = member.memberships.current.members
    for peer_id, progress in list(leader.progress.items()):
        silent = member.now_ticks - progress.contact_tick >= member.config.election_ticks
        if peer_id not in members and (progress.match_index >= index or silent):
            del leader.progress[peer_id]
