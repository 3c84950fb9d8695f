"""A leader's signs of life, and what their answers prove.

Rules: Raft paper, section 5.2; check-quorum: Raft dissertation, section 6.2.
"""

from dledger_node.raft import quorum
from dledger_node.raft.member_state import Leader, MemberState
from dledger_node.raft.messages import HeartBeatRequest, HeartBeatResponse


def quorum_active(member: MemberState, leader: Leader) -> bool:
    """Tell whether a quorum, the leader included, has answered within election_ticks."""
    contacts = [peer.contact_tick for peer in leader.progress.values() if peer.is_voter]
    if leader.is_voter:
        contacts.append(member.now_ticks)
    reached = quorum.reached_by_majority(contacts)
    return member.now_ticks - reached < member.config.election_ticks


def send_round(member: MemberState, leader: Leader) -> None:
    """Begin a heartbeat round."""
    leader.heartbeat_round += 1
    leader.heartbeat_due = member.now_ticks + member.config.heartbeat_ticks
    _forget_answered_rounds(leader)
    leader.rounds_sent.append((leader.heartbeat_round, member.now_ticks))
    for peer_id in leader.progress:
        send_to(member, leader, peer_id)


def confirmed_round(leader: Leader) -> int:
    """The last round that a quorum has answered, the leader included; 0 when there is none."""
    answered = [
        progress.answered_round for progress in leader.progress.values() if progress.is_voter
    ]
    if leader.is_voter:
        answered.append(leader.heartbeat_round)
    return quorum.reached_by_majority(answered)


def confirmed_sent_tick(leader: Leader) -> int | None:
    """When that round was sent; None when there is none."""
    _forget_answered_rounds(leader)
    round_, sent_tick = leader.rounds_sent[0]
    return sent_tick if round_ <= confirmed_round(leader) else None


def send_to(member: MemberState, leader: Leader, peer_id: str) -> None:
    """Tell one peer that the leader lives, and how much of what the peer holds is committed."""
    match_index = leader.progress[peer_id].match_index
    member.send(
        HeartBeatRequest(
            sender=member.self_id,
            receiver=peer_id,
            term=member.term,
            committed_index=min(member.advertised_committed_index, match_index),
            round=leader.heartbeat_round,
        )
    )


def answer(member: MemberState, request: HeartBeatRequest) -> None:
    """Tell the leader that it was heard."""
    member.send(
        HeartBeatResponse(
            sender=member.self_id,
            receiver=request.sender,
            term=member.term,
            round=request.round,
            joining=member.joining is not None,
        )
    )


def handle_response(member: MemberState, leader: Leader, response: HeartBeatResponse) -> None:
    """Note that a peer lives; an answer that a newer one overtook is no news."""
    progress = leader.progress[response.sender]
    if response.round > progress.answered_round:
        progress.answered_round = response.round
        progress.contact_tick = member.now_ticks
        progress.knows_promises = not response.joining


def _forget_answered_rounds(leader: Leader) -> None:
    """Keep the last round that a quorum has answered, and all later ones."""
    confirmed = confirmed_round(leader)
    while len(leader.rounds_sent) > 1 and leader.rounds_sent[1][0] <= confirmed:
        leader.rounds_sent.popleft()
