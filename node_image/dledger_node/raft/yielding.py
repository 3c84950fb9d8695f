"""A member whose state is behind its log lets others be elected first, for a bounded time.

A leader with a state serves only what it has applied. A member that has just started may have to
apply its log for minutes, and while it leads, clients wait. So when its election timeout ends, it
asks nobody for a vote yet. It still votes for others by term and log alone, so no rule on votes
depends on this one.

It does not wait forever: if the other members are behind too, or lack entries, one of them must
lead. By two election timeouts after the last message of a leader, the timer of every member that
heard that leader has ended. One more is time enough for those that are ready to be elected.
"""

from typing import Final

from dledger_node.raft import electorate
from dledger_node.raft.member_state import MemberState

YIELD_TIMEOUTS: Final = 3
"""Election timeouts since the last message of any leader, or since the start, after which a member
stands although its state is behind.
"""


def yields(member: MemberState) -> bool:
    """Tell whether this member, whose election timeout has ended, lets others stand first."""
    yield_ticks = YIELD_TIMEOUTS * member.config.election_ticks
    leaderless_ticks = member.now_ticks - member.leader_contact_tick
    has_peers = bool(electorate.other_voters(member))
    return member.is_behind and has_peers and leaderless_ticks < yield_ticks


def look_again_soon(member: MemberState) -> None:
    """Draw the time after which this member asks itself again whether it stands.

    It is random, so that members that have waited for the same time rarely stand together.
    """
    soon_ticks = member.randint(1, member.config.heartbeat_ticks)
    member.election_deadline = member.now_ticks + soon_ticks
