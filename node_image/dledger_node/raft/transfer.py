"""Leadership transfer, on request and to preferred leaders.

Rules: Raft dissertation, section 3.10; DLedger's `preferredLeaderIds`.
"""

from dledger_node.raft.member_state import Leader, MemberState, Transfer
from dledger_node.raft.messages import PreVoteResponse, TakeLeadershipRequest, VoteResult
from dledger_node.raft.refusals import RefusalCause


def begin(member: MemberState, leader: Leader, transferee_id: str) -> None:
    """Stop taking appends, and ask the transferee to stand as soon as it holds the whole log."""
    deadline = member.now_ticks + member.config.election_ticks
    leader.transfer = Transfer(transferee_id=transferee_id, deadline=deadline)
    leader.lease_ended = True
    leader.push_due = True
    ask_if_caught_up(member, leader)


def ask_if_caught_up(member: MemberState, leader: Leader) -> None:
    """Ask the transferee to stand if it holds the whole log, and all of the log is committed.

    A transferee with a fast disk can hold the last entries before a majority does; if it deposed
    the leader then, their clients would get an unknown outcome. A repeated request has no effect.
    """
    if leader.transfer is None or member.committed_index < member.log.end_index:
        return
    transferee_id = leader.transfer.transferee_id
    if leader.progress[transferee_id].match_index == member.log.end_index:
        member.send(
            TakeLeadershipRequest(sender=member.self_id, receiver=transferee_id, term=member.term)
        )


def end_overdue(member: MemberState, leader: Leader) -> None:
    """Take appends again if the transferee has not been elected in time."""
    if leader.transfer is not None and member.now_ticks >= leader.transfer.deadline:
        leader.transfer = None


def decline(member: MemberState, request: TakeLeadershipRequest) -> None:
    """Decline the leadership, so that the leader takes appends again at once.

    A leader of an earlier release ignores this answer, and waits for the transfer's deadline.
    """
    member.refuse(RefusalCause.STATE_BEHIND)
    member.send(
        PreVoteResponse(
            sender=member.self_id,
            receiver=request.sender,
            term=member.term,
            requested_term=request.term,
            result=VoteResult.REJECT_ALREADY_HAS_LEADER,
        )
    )


def handle_declined(member: MemberState, response: PreVoteResponse) -> None:
    """End a transfer that the transferee declines; ignore any other answer.

    Answers to the pre-votes of a leader's own election name an earlier term.
    """
    leader = member.role_state
    if not isinstance(leader, Leader) or response.requested_term != member.term:
        return
    transfer = leader.transfer
    if transfer is None:
        return
    if response.sender == transfer.transferee_id and response.sender in leader.progress:
        leader.transfer = None
        leader.progress[response.sender].declined_tick = member.now_ticks


def lag_entries(member: MemberState, leader: Leader, peer_id: str) -> int:
    """Return how many entries of this log a peer does not hold durably yet."""
    return member.log.end_index - leader.progress[peer_id].match_index


def is_nearly_caught_up(member: MemberState, leader: Leader, peer_id: str) -> bool:
    """Return whether a peer's lag allows a transfer. A joining peer never qualifies, nor does one
    on a full volume, or that has not answered or has declined the leadership within election_ticks:
    none of these would stand, and the leader would take no appends while it waited for it.
    """
    progress = leader.progress[peer_id]
    asked_tick = progress.join_asked_tick
    joins = (
        asked_tick is not None
        and member.now_ticks - asked_tick <= 2 * member.config.heartbeat_ticks
    )
    lag_entries_max = member.config.transfer_lag_entries_max
    lags = lag_entries(member, leader, peer_id) > lag_entries_max
    is_silent = member.now_ticks - progress.contact_tick >= member.config.election_ticks
    cannot_stand = is_silent or progress.is_full or has_declined(member, leader, peer_id)
    return not (joins or lags or cannot_stand)


def has_declined(member: MemberState, leader: Leader, peer_id: str) -> bool:
    """Return whether a peer has declined the leadership within election_ticks."""
    declined_tick = leader.progress[peer_id].declined_tick
    return (
        declined_tick is not None
        and member.now_ticks - declined_tick < member.config.election_ticks
    )


def fit_peers(member: MemberState, leader: Leader) -> tuple[str, ...]:
    """Return the peers fit to lead, the least lag first; equal lags in order of preference."""
    fit = [peer_id for peer_id in leader.progress if is_fit(member, leader, peer_id)]
    lag = {peer_id: lag_entries(member, leader, peer_id) for peer_id in fit}
    return tuple(sorted(fit, key=lambda one: (lag[one], member.config.preference(one))))


def fittest(member: MemberState, leader: Leader) -> str | None:
    """Return the peer that is fittest to lead; None if none is fit."""
    return next(iter(fit_peers(member, leader)), None)


def transfer_to_preferred(member: MemberState, leader: Leader) -> None:
    """Hand over to a preferred peer once it has been fit to lead for `preference_ticks`.

    The delay keeps an unstable member from taking the leadership each time it returns, and a failed
    transfer from being repeated at once.
    """
    preferred_peer_id = _preferred_peer_id(member, leader)
    if preferred_peer_id != leader.preferred_peer_id:
        leader.preferred_peer_id, leader.preferred_since = preferred_peer_id, member.now_ticks
    waited_ticks = member.now_ticks - leader.preferred_since
    if (
        preferred_peer_id
        and leader.transfer is None
        and waited_ticks >= member.config.preference_ticks
    ):
        leader.preferred_since = member.now_ticks
        begin(member, leader, preferred_peer_id)


def _preferred_peer_id(member: MemberState, leader: Leader) -> str | None:
    """Return the most preferred fit peer; None unless it is preferred to this member."""
    config = member.config
    if leader.noop_index > member.committed_index:
        return None
    for peer_id in config.preferred_leader_ids:
        if peer_id == member.self_id:
            return None
        if is_fit(member, leader, peer_id):
            return peer_id
    return None


def is_fit(member: MemberState, leader: Leader, peer_id: str) -> bool:
    """Return whether a peer is a voter that answered recently and is nearly caught up."""
    progress = leader.progress.get(peer_id)
    if progress is None or not progress.is_voter:
        return False
    lives = member.now_ticks - progress.contact_tick <= 2 * member.config.heartbeat_ticks
    return lives and is_nearly_caught_up(member, leader, peer_id)
