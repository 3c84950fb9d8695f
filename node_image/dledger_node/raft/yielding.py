"""A member whose state is behind its log lets others be elected first, for a bounded time.

A leader with a state serves only what it has applied. A member that has just started may have to
apply its log for minutes, and while it leads, clients wait. So when its election timeout ends, it
does not ask for votes yet. It still votes for others by term and log alone, so no rule on votes
depends on this one.

It does not wait forever: if the other members are behind too, or lack entries, one of them must
lead. Two election timeouts after a leader's last message, the timer of every member that received
it has ended. One more gives the members that are ready enough time to be elected.
"""

from dataclasses import dataclass
from typing import Final

from dledger_node.raft import electorate
from dledger_node.raft.member_state import Leader, MemberState

YIELD_TIMEOUTS: Final = 3
"""Election timeouts since the last message of any leader, or since the start, after which a member
stands although its state is behind.
"""


@dataclass(frozen=True, slots=True)
class ReportedCommit:
    """What a member must have applied at least, by what a leader has reported since its start."""

    index: int
    """The committed index that a leader reported; -1 if none did. For a leader itself, the index of
    its term's first entry.
    """
    is_settled: bool
    """Whether the index is committed here and its entry is of the current term. Only then does it
    include all that earlier leaders have acknowledged.
    """


def reported_commit(member: MemberState) -> ReportedCommit:
    """Return what a leader has reported to this member since its start, as the class describes."""
    match member.role_state:
        case Leader(noop_index=index):
            return ReportedCommit(index, is_settled=index <= member.committed_index)
        case _:
            return ReportedCommit(member.reported_index, is_settled=_is_settled(member))


def note_reported(member: MemberState, committed_index: int) -> None:
    """Keep the first committed index that a leader reports. A later one replaces it only if the
    first is reached and proves to be of an earlier term, so that under load the aim does not move.
    """
    if member.reported_index <= member.committed_index and not _is_settled(member):
        member.reported_index = committed_index


def _is_settled(member: MemberState) -> bool:
    index = member.reported_index
    return 0 <= index <= member.committed_index and member.log.holds(index, member.term)


def yields(member: MemberState) -> bool:
    """Return whether this member, whose election timeout has ended, lets others stand first."""
    yield_ticks = YIELD_TIMEOUTS * member.config.election_ticks
    leaderless_ticks = member.now_ticks - member.leader_contact_tick
    has_peers = bool(electorate.other_voters(member))
    return member.is_behind and has_peers and leaderless_ticks < yield_ticks


def look_again_soon(member: MemberState) -> None:
    """Draw the time after which this member checks again whether to stand for election.

    The time is random, so that members that have waited for the same time rarely stand together.
    """
    soon_ticks = member.randint(1, member.config.heartbeat_ticks)
    member.election_deadline = member.now_ticks + soon_ticks
