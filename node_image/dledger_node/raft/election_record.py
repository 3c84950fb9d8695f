"""Records, for people to read, why a member stands for election or no longer leads.

The members' rules depend on nothing of this.
"""

from dledger_node.raft import heartbeats
from dledger_node.raft.election_causes import Election, ElectionCause, QuorumLoss
from dledger_node.raft.member_state import Candidate, Follower, Leader, MemberState, PreCandidate


def note_election(member: MemberState, cause: ElectionCause) -> None:
    """Record why this member stands for election, before its role changes."""
    former = given_up(member)
    member.elections[cause] += 1
    member.last_election = Election(
        cause=cause,
        term=member.term,
        leader_id=former[0] if former else None,
        silent_ticks=member.now_ticks - member.leader_contact_tick,
    )


def note_quorum_loss(member: MemberState, leader: Leader) -> None:
    """Record that this member no longer leads because no majority answers, before it gives up."""
    silent_ticks = member.now_ticks - heartbeats.quorum_contact_tick(member, leader)
    member.last_quorum_loss = QuorumLoss(term=member.term, silent_ticks=silent_ticks)


def cause(member: MemberState) -> ElectionCause:
    """Return why this member stands, by its role at the time when its election timer ended."""
    match member.role_state:
        case Follower(leader_id=None, given_up=(_, known)):
            return known
        case Follower(leader_id=None) | Leader():
            return ElectionCause.NO_LEADER
        case Follower(leader_link_broken=True):
            return ElectionCause.LEADER_LINK_LOST
        case Follower():
            return ElectionCause.NO_HEARTBEAT
        case PreCandidate() | Candidate():
            return ElectionCause.NO_WINNER


def given_up(member: MemberState) -> tuple[str, ElectionCause] | None:
    """Return the leader that this follower gives up, or has given up in this term, and why.

    A member that must not stand yet follows nobody meanwhile. When it stands in the end, the cause
    is still that leader's silence.
    """
    match member.role_state:
        case Follower(leader_id=None, given_up=former):
            return former
        case Follower(leader_id=str() as leader_id):
            return leader_id, cause(member)
        case _:
            return None
