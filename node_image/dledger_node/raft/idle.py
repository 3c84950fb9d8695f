"""How long a member's clock may run without a look at it.

Most ticks of an idle group change nothing but the clock. A shell that knows how many such ticks
come next sleeps through them, and passes them to the core in one call.
"""

from dledger_node.raft import heartbeats
from dledger_node.raft.member_state import Follower, Leader, MemberState


def idle_ticks(member: MemberState, *, before_timeout: int = 0) -> int:
    """Return how many of the next ticks change nothing but the clock, if no input comes before.

    The last `before_timeout` ticks before a timeout ends do not count as idle. Only the steady
    states have idle ticks: a leader between two heartbeat rounds, and a follower whose election
    timeout has not ended. In all others, which end soon, the answer is 0.
    """
    if member.recalling is not None or member.joining is not None:
        return 0
    match member.role_state:
        case Leader() as leader if leader.transfer is None:
            to_heartbeat = leader.heartbeat_due - member.elapsed_ticks
            to_timeout = _ticks_to_quorum_loss(member, leader) - before_timeout
            return max(0, min(to_heartbeat, to_timeout) - 1)
        case Follower():
            return max(0, member.election_deadline - before_timeout - member.now_ticks - 1)
        case _:
            return 0


def pass_idle_ticks(member: MemberState, count: int, elapsed_ticks: int) -> None:
    """Advance the clock by `count` idle ticks, in which `elapsed_ticks` of time have passed."""
    member.now_ticks += count
    member.elapsed_ticks += elapsed_ticks


def _ticks_to_quorum_loss(member: MemberState, leader: Leader) -> int:
    silent_ticks = member.now_ticks - heartbeats.quorum_contact_tick(member, leader)
    return member.config.election_ticks - silent_ticks
