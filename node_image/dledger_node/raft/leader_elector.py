"""Who leads: timeouts, votes, heartbeats, and how a member changes its role.

Rules: Raft paper, section 5.2 and 5.4.1; check-quorum: Raft dissertation, section 6.2.
"""

from dledger_node.raft import quorum
from dledger_node.raft.member_state import Candidate, Follower, Leader, MemberState
from dledger_node.raft.messages import (
    HeartBeatRequest,
    HeartBeatResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger_node.raft.progress import Progress
from dledger_node.raft.ready import WriteNoop


def restart_election_timer(member: MemberState) -> None:
    """Wait a random time before standing for election, so that members rarely stand together."""
    timeout_ticks = member.randint(member.config.election_ticks, 2 * member.config.election_ticks)
    member.election_deadline = member.now_ticks + timeout_ticks


def expect_failover(member: MemberState) -> None:
    """Count a broken connection to the leader as a missed heartbeat round.

    A leader that lives sends its next round within heartbeat_ticks, and restores the full timeout
    with it; the tick on top is for a round that is late by less than one. While connections are
    refused, this is called again and again: only the first call draws a time, or all followers
    would end up with the shortest.
    """
    heartbeat_ticks = member.config.heartbeat_ticks
    if member.election_deadline > member.now_ticks + 2 * heartbeat_ticks:
        soon_ticks = heartbeat_ticks + member.randint(1, heartbeat_ticks)
        member.election_deadline = member.now_ticks + soon_ticks


def become_follower(member: MemberState, term: int, leader_id: str | None) -> None:
    """Follow in this term, its leader being known or not.

    The timer runs on: a candidate that nobody elects could hold up an election for ever by
    restarting it. A deposed leader had none.
    """
    if isinstance(member.part, Leader):
        restart_election_timer(member)
    if term > member.term:
        member.term = term
        member.vote_for = None
    member.part = Follower(leader_id=leader_id, verified_index=member.committed_index)


def heed_leader(member: MemberState, leader_id: str) -> Follower | None:
    """Take a request of this term as its leader's sign of life.

    None when this term has another leader already: one of the two is broken, and neither may be
    believed on its word.
    """
    if isinstance(member.part, Leader) or member.leader_id not in (None, leader_id):
        member.refuse(f"{leader_id} claims term {member.term}, whose leader is {member.leader_id}")
        return None
    if member.leader_id is None:
        become_follower(member, member.term, leader_id)
    assert isinstance(member.part, Follower)
    member.part.heard_tick = member.now_ticks
    restart_election_timer(member)
    return member.part


def campaign(member: MemberState) -> None:
    """Stand for election in the next term; a member never stands twice in one."""
    member.term += 1
    member.vote_for = member.self_id
    candidate = Candidate(votes={member.self_id})
    member.part = candidate
    restart_election_timer(member)
    for peer_id in member.config.peers:
        ask_for_vote(member, peer_id)
    _count_votes(member, candidate)


def ask_for_vote(member: MemberState, peer_id: str) -> None:
    """Ask one peer; asked again, it gives the same answer."""
    member.send(
        VoteRequest(
            sender=member.self_id,
            receiver=peer_id,
            term=member.term,
            ledger_end_index=member.log.end_index,
            ledger_end_term=member.log.end_term,
        )
    )


def answer_vote_request(member: MemberState, request: VoteRequest) -> None:
    """Vote, or say why not. The term of the request is this member's own."""
    result = _judge_candidate(member, request)
    if result is VoteResult.ACCEPT:
        member.vote_for = request.sender
        restart_election_timer(member)
    send_vote(member, request, result)


def send_vote(member: MemberState, request: VoteRequest, result: VoteResult) -> None:
    """Tell a candidate the result; a vote leaves only once the hard state is durable."""
    member.send(
        VoteResponse(
            sender=member.self_id,
            receiver=request.sender,
            term=member.term,
            requested_term=request.term,
            result=result,
        )
    )


def take_vote(member: MemberState, candidate: Candidate, response: VoteResponse) -> None:
    """Count an answer to this member's own candidacy."""
    if response.requested_term == member.term and response.result is VoteResult.ACCEPT:
        candidate.votes.add(response.sender)
        _count_votes(member, candidate)


def quorum_active(member: MemberState, leader: Leader) -> bool:
    """Tell whether a quorum, the leader included, has answered within election_ticks."""
    contacts = [peer.contact_tick for peer in leader.progress.values()]
    reached = quorum.reached_by_majority([member.now_ticks, *contacts])
    return member.now_ticks - reached < member.config.election_ticks


def send_heartbeats(member: MemberState, leader: Leader) -> None:
    """Begin a heartbeat round."""
    leader.heartbeat_round += 1
    leader.heartbeat_due = member.now_ticks + member.config.heartbeat_ticks
    for peer_id in leader.progress:
        send_heartbeat(member, leader, peer_id)


def send_heartbeat(member: MemberState, leader: Leader, peer_id: str) -> None:
    """Tell one peer that the leader lives, and how much of what the peer holds is committed."""
    match_index = leader.progress[peer_id].match_index
    member.send(
        HeartBeatRequest(
            sender=member.self_id,
            receiver=peer_id,
            term=member.term,
            committed_index=min(member.committed_index, match_index),
            round=leader.heartbeat_round,
        )
    )


def answer_heartbeat(member: MemberState, request: HeartBeatRequest) -> None:
    """Tell the leader that it was heard."""
    member.send(
        HeartBeatResponse(
            sender=member.self_id,
            receiver=request.sender,
            term=member.term,
            round=request.round,
        )
    )


def take_heartbeat_answer(member: MemberState, leader: Leader, response: HeartBeatResponse) -> None:
    """Note that a peer lives; an answer that a newer one overtook is no news."""
    progress = leader.progress[response.sender]
    if response.round > progress.answered_round:
        progress.answered_round = response.round
        progress.contact_tick = member.now_ticks


def _judge_candidate(member: MemberState, request: VoteRequest) -> VoteResult:
    if member.leader_id not in (None, request.sender):
        return VoteResult.REJECT_ALREADY_HAS_LEADER
    if member.vote_for not in (None, request.sender):
        return VoteResult.REJECT_ALREADY_VOTED
    if request.ledger_end_term < member.log.end_term:
        return VoteResult.REJECT_EXPIRED_LEDGER_TERM
    if (
        request.ledger_end_term == member.log.end_term
        and request.ledger_end_index < member.log.end_index
    ):
        return VoteResult.REJECT_SMALL_LEDGER_END_INDEX
    return VoteResult.ACCEPT


def _count_votes(member: MemberState, candidate: Candidate) -> None:
    if quorum.is_majority(len(candidate.votes), len(member.config.voters)):
        _lead(member)


def _lead(member: MemberState) -> None:
    """Begin to lead: write the term's no-op, tell everyone, and compare every log anew.

    The no-op commits what earlier terms left, which may not be committed by counting (Raft paper,
    sections 5.4.2 and 8). A peer is first asked about the entry before it.
    """
    noop_index = member.log.end_index + 1
    leader = Leader(
        noop_index=noop_index,
        progress={
            peer_id: Progress(next_index=noop_index, contact_tick=member.now_ticks)
            for peer_id in member.config.peers
        },
        heartbeat_due=member.now_ticks,
    )
    member.part = leader
    member.append(WriteNoop(index=noop_index, term=member.term), noop_index, member.term)
    send_heartbeats(member, leader)
