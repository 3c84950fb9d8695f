"""Message dispatch: check the sender and the term, then call the rule for the member's role."""

from typing import TypeAlias

from dledger_node.raft import (
    electorate,
    entry_handler,
    entry_pusher,
    heartbeats,
    joining,
    leader_elector,
    recalling,
    transfer,
)
from dledger_node.raft.member_state import (
    Candidate,
    Follower,
    Leader,
    MemberState,
    PreCandidate,
)
from dledger_node.raft.messages import (
    AppendRequest,
    CompareRequest,
    HeartBeatRequest,
    HeartBeatResponse,
    HeldByAllNotice,
    InstallSnapshotRequest,
    JoinRequest,
    JoinResponse,
    LeaderRequest,
    Message,
    PreVoteRequest,
    PreVoteResponse,
    PushResponse,
    TakeLeadershipRequest,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger_node.raft.recall_messages import RecallRequest, RecallResponse
from dledger_node.raft.refusals import RefusalCause

_TermMessage: TypeAlias = (
    VoteRequest | VoteResponse | HeartBeatResponse | PushResponse | LeaderRequest
)
"""Messages to which the rules on terms apply. No other message carries a promise."""
_Answer: TypeAlias = VoteResponse | HeartBeatResponse | PushResponse


def step(member: MemberState, message: Message) -> None:
    """Handle a message. Refuse a message for another member, or from an id outside the group.

    A request from a peer that this member does not know as a member is handled, since the peer may
    have been added in the meantime and may lead. Its responses are refused.
    """
    if isinstance(message, HeldByAllNotice):
        return  # only the shell uses it
    if message.receiver != member.self_id or _is_stranger(member, message.sender):
        member.refuse(RefusalCause.UNKNOWN_MEMBER)
        return
    if member.joining is not None and joining.forbids(member, member.joining, message):
        member.refuse(RefusalCause.JOINING)
        return
    if member.recalling is not None and recalling.forbids(member, message):
        member.refuse(RefusalCause.RECALLING)
        return
    match message:
        case JoinRequest():
            joining.answer(member, message)
        case JoinResponse():
            joining.handle_response(member, message)
        case RecallRequest():
            recalling.answer(member, message)
        case RecallResponse():
            recalling.handle_response(member, message)
        case PreVoteRequest():
            leader_elector.handle_pre_vote_request(member, message)
        case PreVoteResponse():
            leader_elector.handle_pre_vote_response(member, message)
            transfer.handle_declined(member, message)
        case VoteRequest() if _disturbs(member, message):
            # No answer: the candidate learns the current term from the live leader's heartbeats.
            member.refuse(RefusalCause.LEADER_LIVES)
        case _:
            _step_in_term(member, message)


def _is_stranger(member: MemberState, sender: str) -> bool:
    if sender in member.config.peers:
        return False
    return sender == member.self_id or not electorate.belongs(member, sender)


def _disturbs(member: MemberState, request: VoteRequest) -> bool:
    """Return whether a candidate would depose a live leader (Raft dissertation, 4.2.3).

    With leases, that leader's term may be older than this member's.
    """
    return (
        (request.term > member.term or (member.config.lease_ticks > 0 and not member.leader_id))
        and not request.take_leadership
        and leader_elector.has_live_leader(member)
    )


def _step_in_term(member: MemberState, message: _TermMessage) -> None:
    """Handle a message whose term may raise this member's; refuse it if its term is older."""
    if message.term < member.term:
        _refuse_old_term(member, message)
        return
    if message.term > member.term:
        if isinstance(message, _Answer) and not electorate.belongs(member, message.sender):
            member.refuse(RefusalCause.UNKNOWN_MEMBER)  # a removed member must not depose a leader
            return
        leader_elector.become_follower(member, message.term, None)
    match member.role_state:
        case Leader() as leader:
            _step_leader(member, leader, message)
        case Candidate() as candidate:
            _step_candidate(member, candidate, message)
        case PreCandidate() | Follower():
            _step_follower(member, message)


def _refuse_old_term(member: MemberState, message: _TermMessage) -> None:
    """Report the newer term to the sender of a request; ignore old responses."""
    member.refuse(RefusalCause.EXPIRED_TERM)
    match message:
        case VoteRequest():
            leader_elector.send_vote(member, message, VoteResult.REJECT_EXPIRED_VOTE_TERM)
        case HeartBeatRequest():
            heartbeats.answer(member, message)
        case CompareRequest() | AppendRequest() | InstallSnapshotRequest():
            entry_handler.refuse_expired(member, message)
        case TakeLeadershipRequest() | VoteResponse() | HeartBeatResponse() | PushResponse():
            pass


def _step_leader(member: MemberState, leader: Leader, message: _TermMessage) -> None:
    match message:
        case PushResponse() if message.sender in leader.progress:
            entry_pusher.handle_response(member, leader, message)
            if member.role_state is leader:
                transfer.ask_if_caught_up(member, leader)
        case HeartBeatResponse() if message.sender in leader.progress:
            heartbeats.handle_response(member, leader, message)
        case PushResponse() | HeartBeatResponse():
            member.refuse(RefusalCause.UNKNOWN_MEMBER)
        case VoteRequest():
            leader_elector.handle_vote_request(member, message)
        case VoteResponse():
            pass  # this election is decided
        case _:
            leader_elector.accept_leader(member, message.sender)  # which refuses and counts it


def _step_candidate(member: MemberState, candidate: Candidate, message: _TermMessage) -> None:
    match message:
        case VoteResponse():
            leader_elector.handle_vote_response(member, candidate, message)
        case _:
            _step_follower(member, message)


def _step_follower(member: MemberState, message: _TermMessage) -> None:
    match message:
        case VoteRequest():
            leader_elector.handle_vote_request(member, message)
        case VoteResponse() | HeartBeatResponse() | PushResponse():
            pass  # a response to a request that this member sent in an earlier role
        case _:
            _obey(member, message)


def _obey(member: MemberState, request: LeaderRequest) -> None:
    """Handle a request from the leader of this term."""
    follower = leader_elector.accept_leader(member, request.sender)
    if follower is None:
        return
    match request:
        case HeartBeatRequest():
            heartbeats.answer(member, request)
            entry_handler.handle_heartbeat(member, follower, request)
        case CompareRequest():
            entry_handler.handle_compare(member, follower, request)
        case AppendRequest():
            entry_handler.handle_append(member, follower, request)
        case InstallSnapshotRequest():
            entry_handler.handle_install(member, follower, request)
        case TakeLeadershipRequest() if not electorate.may_campaign(member):
            member.refuse(RefusalCause.NO_VOTER)
        case TakeLeadershipRequest() if member.is_behind:
            transfer.decline(member, request)
        case TakeLeadershipRequest():
            leader_elector.campaign(member, take_leadership=True)
