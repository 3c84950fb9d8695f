"""Elections: timeouts, pre-votes, votes, and how a member changes its role.

    Follower -- election timeout --> PreCandidate -- a majority would --> Candidate --> Leader
                                     vote for it       in the next term

Rules: Raft paper, sections 5.2 and 5.4.1; Raft dissertation, sections 9.6 (pre-vote) and 4.2.3
(members that have a live leader ignore candidates).
"""

from dledger_node.raft import election_record, electorate, heartbeats, marks, quorum, reads
from dledger_node.raft.election_causes import ElectionCause
from dledger_node.raft.log_terms import BEFORE_FIRST, EMPTY
from dledger_node.raft.member_state import (
    Candidate,
    Follower,
    Leader,
    MemberState,
    PreCandidate,
)
from dledger_node.raft.messages import (
    PreVoteRequest,
    PreVoteResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger_node.raft.ready import WriteNoop
from dledger_node.raft.refusals import RefusalCause


def restart_election_timer(member: MemberState) -> None:
    """Draw a random election timeout, so that members rarely stand at the same time."""
    timeout_ticks = member.randint(member.config.election_ticks, 2 * member.config.election_ticks)
    member.election_deadline = member.now_ticks + timeout_ticks


def restart_vote_timer(member: MemberState) -> None:
    """Draw a random time for this round of votes; when it ends, the member starts another.

    The time is short, since there is no leader that a new round could disturb. Its range is a few
    round trips wide, so that two members that stood together rarely do so again.
    """
    heartbeat_ticks = member.config.heartbeat_ticks
    timeout_ticks = member.randint(heartbeat_ticks, 3 * heartbeat_ticks)
    member.election_deadline = member.now_ticks + timeout_ticks


def leader_link_lost(member: MemberState, follower: Follower) -> None:
    """Shorten the election timeout, as if a heartbeat round had been missed.

    A live leader sends its next round within heartbeat_ticks, which restores the full timeout; the
    extra tick allows for a round that is slightly late. While connections are refused this is
    called repeatedly: only the first call draws a time, or all followers would end up with the
    shortest one. With leases the timeout stays, since a broken connection does not end a lease.
    """
    if member.config.lease_ticks:
        return
    follower.leader_link_broken = True
    heartbeat_ticks = member.config.heartbeat_ticks
    if member.election_deadline > member.now_ticks + 2 * heartbeat_ticks:
        soon_ticks = heartbeat_ticks + member.randint(1, heartbeat_ticks)
        member.election_deadline = member.now_ticks + soon_ticks


def forget_leader(member: MemberState) -> None:
    """Follow no leader and wait for another; for members that must not stand for election."""
    become_follower(member, member.term, None)
    restart_election_timer(member)


def has_live_leader(member: MemberState) -> bool:
    """Return whether this member has a live leader, or is one, that no candidate should depose.

    A lease depends on every member that answered the leader. So with `lease_ticks` the answer is
    also yes if this member has just started, or left its leader for a newer term, within
    election_ticks.
    """
    config = member.config
    if config.lease_ticks and member.now_ticks - member.leader_contact_tick < config.election_ticks:
        return True
    match member.role_state:
        case Leader() as leader:
            return heartbeats.quorum_active(member, leader)
        case Follower() as follower:
            return follower.leader_is_alive(member) and not follower.leader_link_broken
        case PreCandidate() | Candidate():
            return False


def become_follower(member: MemberState, term: int, leader_id: str | None) -> None:
    """Become a follower in `term`; `leader_id` is None if the term's leader is not known.

    The election timer keeps running: otherwise a candidate that cannot win could delay an election
    forever by raising the term. A deposed leader has no timer, so it starts one.
    """
    gives_up = leader_id is None and term == member.term
    given_up = election_record.given_up(member) if gives_up else None
    marks.note_all(member)
    if isinstance(member.role_state, Leader):
        reads.fail_pending(member, member.role_state)
        restart_election_timer(member)
    if term > member.term:
        member.term = term
        member.vote_for = None
        member.contradiction = ""
    member.role_state = Follower(leader_id=leader_id, verified_index=member.committed_index)
    member.role_state.given_up = given_up


def accept_leader(member: MemberState, leader_id: str) -> Follower | None:
    """Accept the sender of a leader's request as the leader of this term, and reset the timer.

    Returns None, and refuses the request, if this term already has another leader: one of the two
    is broken, and this member cannot know which.
    """
    if isinstance(member.role_state, Leader) or member.leader_id not in (None, leader_id):
        member.refuse(
            RefusalCause.OTHER_LEADER,
            f"{leader_id} claims to lead term {member.term}, but {member.leader_id} leads it",
        )
        return None
    if member.leader_id is None:
        become_follower(member, member.term, leader_id)
        member.alone = False
    assert isinstance(member.role_state, Follower)
    member.role_state.leader_contact_tick = member.leader_contact_tick = member.now_ticks
    member.role_state.leader_link_broken = False
    restart_election_timer(member)
    return member.role_state


def start_pre_vote(member: MemberState) -> None:
    """Ask whether a majority would vote for this member, before it raises its term.

    So a member that returns from a partition, or has lost only its own links, deposes no leader.
    """
    election_record.note_election(member, election_record.cause(member))
    marks.note_all(member)
    candidate = PreCandidate(votes=electorate.own_votes(member))
    member.role_state = candidate
    restart_vote_timer(member)
    for peer_id in electorate.other_voters(member):
        ask_for_vote(member, candidate, peer_id)
    _count_votes(member, candidate)


def campaign(member: MemberState, *, take_leadership: bool = False) -> None:
    """Stand for election in the next term; a member never stands twice in one term."""
    if take_leadership:
        election_record.note_election(member, ElectionCause.TRANSFER)
    marks.note_all(member)
    member.term += 1
    member.vote_for = member.self_id
    member.contradiction = ""
    candidate = Candidate(votes=electorate.own_votes(member), take_leadership=take_leadership)
    member.role_state = candidate
    restart_vote_timer(member)
    for peer_id in electorate.other_voters(member):
        ask_for_vote(member, candidate, peer_id)
    _count_votes(member, candidate)


def ask_for_vote(member: MemberState, candidate: PreCandidate | Candidate, peer_id: str) -> None:
    """Ask one peer for its vote or pre-vote; a repeated request gets the same answer."""
    match candidate:
        case PreCandidate():
            member.send(
                PreVoteRequest(
                    sender=member.self_id,
                    receiver=peer_id,
                    term=member.term,
                    ledger_end_index=member.log.end_index,
                    ledger_end_term=member.log.end_term,
                )
            )
        case Candidate(take_leadership=take_leadership):
            member.send(
                VoteRequest(
                    sender=member.self_id,
                    receiver=peer_id,
                    term=member.term,
                    ledger_end_index=member.log.end_index,
                    ledger_end_term=member.log.end_term,
                    take_leadership=take_leadership,
                )
            )


def handle_pre_vote_request(member: MemberState, request: PreVoteRequest) -> None:
    """Answer how this member would vote; its own state and term do not change."""
    member.send(
        PreVoteResponse(
            sender=member.self_id,
            receiver=request.sender,
            term=member.term,
            requested_term=request.term,
            result=_pre_vote_result(member, request),
        )
    )


def handle_pre_vote_response(member: MemberState, response: PreVoteResponse) -> None:
    """Count a pre-vote, or follow in the newer term that the response reports."""
    if response.term > member.term:
        become_follower(member, response.term, None)
        return
    candidate = member.role_state
    if not isinstance(candidate, PreCandidate) or response.requested_term != member.term:
        return
    if response.result is VoteResult.ACCEPT:
        _add_vote(member, candidate, response.sender)


def handle_vote_request(member: MemberState, request: VoteRequest) -> None:
    """Vote, or answer why not. The request's term equals this member's."""
    result = _vote_result(member, request)
    if result is VoteResult.ACCEPT:
        member.vote_for = request.sender
        marks.note(member, request.sender, BEFORE_FIRST)
        member.alone = False
        restart_election_timer(member)
    send_vote(member, request, result)


def send_vote(member: MemberState, request: VoteRequest, result: VoteResult) -> None:
    """Send a candidate the result. The shell saves the hard state before it sends the vote."""
    member.send(
        VoteResponse(
            sender=member.self_id,
            receiver=request.sender,
            term=member.term,
            requested_term=request.term,
            result=result,
        )
    )


def handle_vote_response(member: MemberState, candidate: Candidate, response: VoteResponse) -> None:
    """Count a response to this candidate's vote request."""
    if response.requested_term == member.term and response.result is VoteResult.ACCEPT:
        marks.note(member, response.sender, BEFORE_FIRST)
        _add_vote(member, candidate, response.sender)


def _pre_vote_result(member: MemberState, request: PreVoteRequest) -> VoteResult:
    """Return how this member would vote in the term after the request's."""
    if request.term < member.term:
        return VoteResult.REJECT_EXPIRED_VOTE_TERM
    if has_live_leader(member):
        return VoteResult.REJECT_ALREADY_HAS_LEADER
    if isinstance(member.role_state, Candidate) or (
        isinstance(member.role_state, PreCandidate) and _goes_first(member, request)
    ):
        return VoteResult.REJECT_ALREADY_VOTED  # this member votes for itself, or soon will
    return _result_by_log(member, request)


def _goes_first(member: MemberState, request: PreVoteRequest) -> bool:
    """Return whether this member precedes a pre-candidate with an equal log.

    One of two members that ask at the same time must give way, or they split the votes.
    """
    own_log = (member.log.end_term, member.log.end_index)
    same_log = own_log == (request.ledger_end_term, request.ledger_end_index)
    config = member.config
    return same_log and config.preference(member.self_id) < config.preference(request.sender)


def _vote_result(member: MemberState, request: VoteRequest) -> VoteResult:
    if member.leader_id not in (None, request.sender):
        return VoteResult.REJECT_ALREADY_HAS_LEADER
    if member.vote_for not in (None, request.sender):
        return VoteResult.REJECT_ALREADY_VOTED
    if member.vote_for is None and member.term <= member.unsure_term:
        return VoteResult.REJECT_ALREADY_VOTED  # the disk may lack a vote of that term
    return _result_by_log(member, request)


def _result_by_log(member: MemberState, request: PreVoteRequest | VoteRequest) -> VoteResult:
    """Accept a candidate only if its log is at least as up to date (Raft paper, 5.4.1).

    This member's log counts as far as it was confirmed, even if its host has lost the end of it.
    """
    end = max(member.log.end, member.promised_end or EMPTY)
    if request.ledger_end_term < end.term:
        return VoteResult.REJECT_EXPIRED_LEDGER_TERM
    if request.ledger_end_term == end.term and request.ledger_end_index < end.index:
        return VoteResult.REJECT_SMALL_LEDGER_END_INDEX
    return VoteResult.ACCEPT


def _add_vote(member: MemberState, candidate: PreCandidate | Candidate, voter_id: str) -> None:
    """Count a vote if it comes from a voter."""
    if voter_id in member.memberships.current.voters:
        candidate.votes.add(voter_id)
        _count_votes(member, candidate)


def _count_votes(member: MemberState, candidate: PreCandidate | Candidate) -> None:
    if not quorum.is_majority(len(candidate.votes), len(member.memberships.current.voters)):
        return
    match candidate:
        case PreCandidate():
            campaign(member)
        case Candidate():
            _become_leader(member)


def _become_leader(member: MemberState) -> None:
    """Become the leader: append a no-op, send heartbeats, and compare every peer's log.

    The no-op commits entries of earlier terms, which must not be committed by counting (Raft paper,
    sections 5.4.2 and 8). The first probe of each peer asks about the entry before the no-op.
    """
    noop_index = member.log.end_index + 1
    leader = Leader(noop_index=noop_index, progress={}, heartbeat_due=member.elapsed_ticks)
    member.role_state = leader
    electorate.update_peers(member, leader, next_index=noop_index)
    member.append(WriteNoop(index=noop_index, term=member.term), noop_index, member.term)
    heartbeats.send_round(member, leader)
