"""Who votes and whom a leader pushes to, by the membership that a member knows.

Rules: Raft dissertation, sections 4.1, 4.2.1 and 4.2.2. Whom to count is decided by whoever asks: a
member answers each candidate by term and log alone, also one that it does not count among the
voters, and if it is no voter itself. A membership that only the candidate knows yet may have made
them what they are, and need this very vote.
"""

from dledger_node.raft.member_state import Leader, MemberState
from dledger_node.raft.progress import Progress


def other_voters(member: MemberState) -> list[str]:
    """Whom a candidate asks."""
    voters = member.memberships.current.voters
    return [voter_id for voter_id in voters if voter_id != member.self_id]


def own_votes(member: MemberState) -> set[str]:
    """What a candidate has before anybody answers: a member outside does not count itself."""
    return {member.self_id} if member.is_voter else set()


def belongs(member: MemberState, member_id: str) -> bool:
    """Tell whether somebody is a member, or was one before a change that is not committed."""
    possible = member.memberships.possible(member.committed_index)
    return any(member_id in membership.members for membership in possible)


def may_campaign(member: MemberState) -> bool:
    """Tell whether this member may be needed as a leader.

    So may be a voter that is being removed: until that is committed, it can be the only one whose
    log suffices (Raft dissertation, 4.2.2). Once it knows that it is, it stands no more.
    """
    possible = member.memberships.possible(member.committed_index)
    return any(member.self_id in membership.voters for membership in possible)


def update_peers(member: MemberState, leader: Leader, next_index: int) -> None:
    """Push to all who belong to the group, and count its voters.

    Who is being removed is pushed to until `stop_pushing_to_removed`. `next_index` is where a new peer is asked
    first.
    """
    possible = member.memberships.possible(member.committed_index)
    peer_ids = {one for membership in possible for one in membership.members} - {member.self_id}
    voters = member.memberships.current.voters
    known, leader.progress = leader.progress, {}
    for peer_id in sorted(peer_ids | known.keys()):
        progress = known.get(peer_id) or Progress(
            next_index=next_index,
            contact_tick=member.now_ticks,
            answered_round=leader.heartbeat_round,  # rounds of an earlier stay count no more
        )
        progress.is_voter = peer_id in voters
        leader.progress[peer_id] = progress
    leader.is_voter = member.is_voter
    leader.push_due = True


def stop_pushing_to_removed(member: MemberState, leader: Leader) -> None:
    """Push no more to who was removed, once it has heard that it was, or hears nothing.

    Called after every heartbeat round: the last one has told it that its removal is committed.
    """
    index = member.memberships.last_index
    if not member.memberships.changed or index > member.committed_index:
        return
    members = member.memberships.current.members
    for peer_id, progress in list(leader.progress.items()):
        silent = member.now_ticks - progress.contact_tick >= member.config.election_ticks
        if peer_id not in members and (progress.match_index >= index or silent):
            del leader.progress[peer_id]
