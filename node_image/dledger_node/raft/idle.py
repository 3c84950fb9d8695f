"""How many of the next ticks change nothing, so that an idle member can sleep through them.

Most ticks of an idle group change nothing but the clock. A shell that knows how many such ticks
come next sleeps through them, and passes them to the core in one call.
"""

from typing import Final

from dledger_node.raft import heartbeats
from dledger_node.raft.member_state import (
    Candidate,
    Follower,
    Leader,
    MemberState,
    PreCandidate,
)

NEVER_TICKS: Final = 1 << 62


def idle_ticks(member: MemberState, *, before_timeout: int = 0) -> int:
    """Return how many of the next ticks change nothing but the clock, if no input comes before.

    The last `before_timeout` ticks before a timeout ends do not count as idle. States that may last
    have idle ticks: a leader between two heartbeat rounds, and a follower or candidate whose
    election timeout has not ended, since a majority may be away for days. A member that joins, or
    recalls, is idle between two rounds of its questions: it may be long until it is added, or until
    the last peer answers. In all others, which end soon, the answer is 0.
    """
    due = min(_ticks_to_act(member, before_timeout), _ticks_to_question(member))
    return max(0, due - 1)


def pass_idle_ticks(member: MemberState, count: int, elapsed_ticks: int) -> None:
    """Advance the clock by `count` idle ticks, in which `elapsed_ticks` of time have passed."""
    member.now_ticks += count
    member.elapsed_ticks += elapsed_ticks


def _ticks_to_act(member: MemberState, before_timeout: int) -> int:
    match member.role_state:
        case Leader() as leader if heartbeats.uninformed_peers(member, leader):
            return 0
        case Leader() as leader if leader.transfer is None:
            to_heartbeat = leader.heartbeat_due - member.elapsed_ticks
            to_timeout = _ticks_to_quorum_loss(member, leader) - before_timeout
            return min(to_heartbeat, to_timeout)
        case Follower() | PreCandidate() | Candidate():
            return _ticks_to_timeout(member) - before_timeout
        case _:
            return 0


def _ticks_to_question(member: MemberState) -> int:
    """Return the ticks until a joining or recalling member asks its peers, or stops asking."""
    due = NEVER_TICKS
    if member.joining is not None:
        due = member.joining.ask_due
    if member.recalling is not None:
        due = min(due, member.recalling.ask_due)
        if member.recalling.waits:
            due = min(due, member.config.recall_ticks)
    return due - member.now_ticks


def _ticks_to_timeout(member: MemberState) -> int:
    """Return in how many ticks a follower's election timeout ends.

    A new group's only first voter waits an election timeout from its start (`joining`).
    """
    from_start = member.config.election_ticks - member.now_ticks
    to_deadline = member.election_deadline - member.now_ticks
    is_starting = member.joining is not None and from_start > 0
    return min(from_start, to_deadline) if is_starting else to_deadline


def _ticks_to_quorum_loss(member: MemberState, leader: Leader) -> int:
    silent_ticks = member.now_ticks - heartbeats.quorum_contact_tick(member, leader)
    return member.config.election_ticks - silent_ticks
