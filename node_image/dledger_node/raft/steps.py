"""What a message does to a member: its term first, then by the member's role."""

from dledger_node.raft import entry_handler, entry_pusher, leader_elector
from dledger_node.raft.member_state import Candidate, Follower, Leader, MemberState
from dledger_node.raft.messages import (
    AppendRequest,
    CompareRequest,
    HeartBeatRequest,
    HeartBeatResponse,
    Message,
    PushResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)


def step(member: MemberState, message: Message) -> None:
    """Take a message. One that is not for this member, or from no other voter, is ignored."""
    if message.receiver != member.self_id or message.sender not in member.config.peers:
        return
    if message.term < member.term:
        _refuse_old_term(member, message)
        return
    if message.term > member.term:
        leader_elector.become_follower(member, message.term, None)
    match member.part:
        case Leader() as leader:
            _step_leader(member, leader, message)
        case Candidate() as candidate:
            _step_candidate(member, candidate, message)
        case Follower():
            _step_follower(member, message)


def _refuse_old_term(member: MemberState, message: Message) -> None:
    """Tell a sender of an older term that there is a newer one; old answers mean nothing."""
    match message:
        case VoteRequest():
            leader_elector.send_vote(member, message, VoteResult.REJECT_EXPIRED_VOTE_TERM)
        case HeartBeatRequest():
            leader_elector.answer_heartbeat(member, message)
        case CompareRequest() | AppendRequest():
            entry_handler.refuse_expired(member, message)
        case VoteResponse() | HeartBeatResponse() | PushResponse():
            pass


def _step_leader(member: MemberState, leader: Leader, message: Message) -> None:
    match message:
        case PushResponse():
            entry_pusher.take_answer(member, leader, message)
        case HeartBeatResponse():
            leader_elector.take_heartbeat_answer(member, leader, message)
        case VoteRequest():
            leader_elector.answer_vote_request(member, message)
        case HeartBeatRequest() | CompareRequest() | AppendRequest():
            leader_elector.heed_leader(member, message.sender)  # which refuses and counts it
        case VoteResponse():
            pass  # this election is decided


def _step_candidate(member: MemberState, candidate: Candidate, message: Message) -> None:
    match message:
        case VoteResponse():
            leader_elector.take_vote(member, candidate, message)
        case _:
            _step_follower(member, message)


def _step_follower(member: MemberState, message: Message) -> None:
    match message:
        case HeartBeatRequest() | CompareRequest() | AppendRequest():
            _obey(member, message)
        case VoteRequest():
            leader_elector.answer_vote_request(member, message)
        case VoteResponse() | HeartBeatResponse() | PushResponse():
            pass  # answers what this member asked in an earlier role


def _obey(member: MemberState, request: HeartBeatRequest | CompareRequest | AppendRequest) -> None:
    """Do what the leader of this term asks."""
    follower = leader_elector.heed_leader(member, request.sender)
    if follower is None:
        return
    match request:
        case HeartBeatRequest():
            leader_elector.answer_heartbeat(member, request)
            entry_handler.handle_heartbeat(member, follower, request)
        case CompareRequest():
            entry_handler.handle_compare(member, follower, request)
        case AppendRequest():
            entry_handler.handle_append(member, follower, request)
