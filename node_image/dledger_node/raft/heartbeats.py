"""Heartbeat rounds, and the proof of leadership that a quorum's answers give.

Rules: Raft paper, section 5.2; check-quorum: Raft dissertation, section 6.2.
"""

from dledger_node.raft import quorum
from dledger_node.raft.member_state import Leader, MemberState
from dledger_node.raft.messages import HeartBeatRequest, HeartBeatResponse
from dledger_node.raft.progress import Progress


def quorum_active(member: MemberState, leader: Leader) -> bool:
    """Return whether a quorum, counting the leader, has answered within election_ticks."""
    return member.now_ticks - quorum_contact_tick(member, leader) < member.config.election_ticks


def quorum_contact_tick(member: MemberState, leader: Leader) -> int:
    """Return the last tick since which a quorum, counting the leader, has answered."""
    contacts = [peer.contact_tick for peer in leader.progress.values() if peer.is_voter]
    if leader.is_voter:
        contacts.append(member.now_ticks)
    return quorum.reached_by_majority(contacts)


def send_round(member: MemberState, leader: Leader) -> None:
    """Start a heartbeat round: send a heartbeat to every peer."""
    leader.heartbeat_round += 1
    leader.heartbeat_due = member.elapsed_ticks + member.config.heartbeat_ticks
    _forget_answered_rounds(leader)
    leader.rounds_sent.append((leader.heartbeat_round, member.now_ticks))
    for peer_id in leader.progress:
        send_to(member, leader, peer_id)


def confirmed_round(leader: Leader) -> int:
    """Return the last round that a quorum, counting the leader, has answered; 0 if none."""
    answered = [
        progress.answered_round for progress in leader.progress.values() if progress.is_voter
    ]
    if leader.is_voter:
        answered.append(leader.heartbeat_round)
    return quorum.reached_by_majority(answered)


def confirmed_sent_tick(leader: Leader) -> int | None:
    """Return the tick at which the confirmed round was sent; None if none is confirmed."""
    _forget_answered_rounds(leader)
    round_, sent_tick = leader.rounds_sent[0]
    return sent_tick if round_ <= confirmed_round(leader) else None


def send_to(member: MemberState, leader: Leader, peer_id: str) -> None:
    """Send one peer a heartbeat, with the committed index or the peer's match index if lower."""
    progress = leader.progress[peer_id]
    committed_index = min(member.advertised_committed_index, progress.match_index)
    note_reported(member, progress, committed_index)
    member.send(
        HeartBeatRequest(
            sender=member.self_id,
            receiver=peer_id,
            term=member.term,
            committed_index=committed_index,
            round=leader.heartbeat_round,
        )
    )


def note_reported(member: MemberState, progress: Progress, committed_index: int) -> None:
    """Record that a message reports this committed index to a peer."""
    if member.config.notices_per_tick_max:
        progress.reported_index = max(progress.reported_index, committed_index)


def uninformed_peers(member: MemberState, leader: Leader) -> list[str]:
    """Return the peers that do not know yet that entries which they hold are committed.

    Readers at a follower wait for that. Under load, the next push reports it soon enough.
    """
    if not member.config.notices_per_tick_max:
        return []
    advertised_index = member.advertised_committed_index
    return [
        peer_id
        for peer_id, progress in leader.progress.items()
        if progress.reported_index < advertised_index
        and progress.reported_index < progress.match_index
    ]


def send_notices(member: MemberState, leader: Leader) -> None:
    """Report the committed index to peers by a heartbeat of this round, unless it moves so often
    that the next push reports it soon; then send the heartbeat once it moves less often.
    """
    leader.notices_due = False
    peer_ids = uninformed_peers(member, leader)
    if not peer_ids:
        return
    index, now_ticks = member.advertised_committed_index, member.elapsed_ticks
    if leader.commit_moves.per_tick(index, now_ticks) <= member.config.notices_per_tick_max:
        for peer_id in peer_ids:
            send_to(member, leader, peer_id)


def answer(member: MemberState, request: HeartBeatRequest) -> None:
    """Answer a heartbeat. The answer to one of an earlier term names no round: if its sender leads
    this term by now, the number would be that of another round.
    """
    round_ = request.round if request.term == member.term else 0
    member.send(
        HeartBeatResponse(
            sender=member.self_id,
            receiver=request.sender,
            term=member.term,
            round=round_,
            joining=member.joining is not None,
            full=not member.has_room,
        )
    )


def handle_response(member: MemberState, leader: Leader, response: HeartBeatResponse) -> None:
    """Record a peer's answer; ignore one that arrives after the answer to a later round."""
    progress = leader.progress[response.sender]
    if response.round > progress.answered_round:
        progress.answered_round = response.round
        progress.contact_tick = member.now_ticks
        progress.knows_promises = not response.joining
        progress.is_full = response.full


def full_peers(member: MemberState, leader: Leader) -> list[str]:
    """Return the peers whose last answers said that their volumes are full.

    One that has been silent for election_ticks is not among them: it may have room by now. A new
    leader knows of no full peer until it gets an answer.
    """
    return [
        peer_id
        for peer_id, peer in leader.progress.items()
        if peer.is_full and member.now_ticks - peer.contact_tick < member.config.election_ticks
    ]


def lacks_room(member: MemberState, leader: Leader) -> bool:
    """Return whether every majority includes a voter on a full volume, so that a new entry could
    not be committed before one of them has room. A leader's own volume is its shell's concern.

    The current membership decides, as it does about commits.
    """
    full = full_peers(member, leader)
    if not full:
        return False
    voters = member.memberships.current.voters
    full_count = sum(peer_id in voters for peer_id in full)
    return quorum.meets_every_majority(full_count, len(voters))


def _forget_answered_rounds(leader: Leader) -> None:
    """Drop all rounds before the last one that a quorum has answered."""
    confirmed = confirmed_round(leader)
    while len(leader.rounds_sent) > 1 and leader.rounds_sent[1][0] <= confirmed:
        leader.rounds_sent.popleft()
