"""Handing the leadership over: on request, and to a member that ought to lead.

Rules: Raft dissertation, section 3.10; DLedger's `preferredLeaderIds`.
"""

from dledger_node.raft.member_state import Leader, MemberState, Transfer
from dledger_node.raft.messages import TakeLeadershipRequest


def begin(member: MemberState, leader: Leader, transferee_id: str) -> None:
    """Stop taking appends, and let the transferee stand as soon as it has all."""
    deadline = member.now_ticks + member.config.election_ticks
    leader.transfer = Transfer(transferee_id=transferee_id, deadline=deadline)
    leader.lease_ended = True
    leader.push_due = True
    ask_if_caught_up(member, leader)


def ask_if_caught_up(member: MemberState, leader: Leader) -> None:
    """Ask the transferee to stand if it holds all of the log; asked twice, it stands once.

    All must be committed too: a leader that is deposed before leaves its clients in doubt, whose
    entries a transferee with a faster disk may hold sooner than a majority does.
    """
    if leader.transfer is None or member.committed_index < member.log.end_index:
        return
    transferee_id = leader.transfer.transferee_id
    if leader.progress[transferee_id].match_index == member.log.end_index:
        member.send(
            TakeLeadershipRequest(sender=member.self_id, receiver=transferee_id, term=member.term)
        )


def end_overdue(member: MemberState, leader: Leader) -> None:
    """Take appends again when the transferee does not lead in time."""
    if leader.transfer is not None and member.now_ticks >= leader.transfer.deadline:
        leader.transfer = None


def lag_entries(member: MemberState, leader: Leader, peer_id: str) -> int:
    """How many entries a peer has yet to store durably."""
    return member.log.end_index - leader.progress[peer_id].match_index


def is_nearly_caught_up(member: MemberState, leader: Leader, peer_id: str) -> bool:
    """Tell whether a peer could take over soon; one that still joins never does."""
    asked_tick = leader.progress[peer_id].join_asked_tick
    joins = (
        asked_tick is not None
        and member.now_ticks - asked_tick <= 2 * member.config.heartbeat_ticks
    )
    lag_entries_max = member.config.transfer_lag_entries_max
    return not joins and lag_entries(member, leader, peer_id) <= lag_entries_max


def fit_peers(member: MemberState, leader: Leader) -> tuple[str, ...]:
    """The peers that live and could take over, first who holds most; the more wanted of equals."""
    fit = [peer_id for peer_id in leader.progress if is_fit(member, leader, peer_id)]
    lag = {peer_id: lag_entries(member, leader, peer_id) for peer_id in fit}
    return tuple(sorted(fit, key=lambda one: (lag[one], member.config.preference(one))))


def fittest(member: MemberState, leader: Leader) -> str | None:
    """The peer that could take over soonest; None when no peer could."""
    return next(iter(fit_peers(member, leader)), None)


def transfer_to_preferred(member: MemberState, leader: Leader) -> None:
    """Hand over to a peer that ought to lead, once it has been fit to for a while.

    The wait is what keeps a member that comes and goes from taking the leadership each time, and a
    transfer that failed from being tried again at once.
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
    """The most preferred peer, if it is preferred to this member, lives, and lags little."""
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
    """Tell whether a voter lives and could take over soon."""
    progress = leader.progress.get(peer_id)
    if progress is None or not progress.is_voter:
        return False
    lives = member.now_ticks - progress.contact_tick <= 2 * member.config.heartbeat_ticks
    return lives and is_nearly_caught_up(member, leader, peer_id)
