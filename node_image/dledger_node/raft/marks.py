"""Marks: the last promise of each peer that this member knows, in case the peer loses it.

Marks are kept in memory only. `recalling` explains their use.
"""

from dledger_node.raft import electorate
from dledger_node.raft.log_terms import BEFORE_FIRST
from dledger_node.raft.member_state import Follower, Leader, MemberState
from dledger_node.raft.recall_messages import Mark


def note(member: MemberState, peer_id: str, index: int) -> None:
    """Record a peer's promise in this term: a vote if `index` is -1; otherwise that its disk holds
    this member's entries up to `index`.
    """
    if not electorate.belongs(member, peer_id):
        return
    known = member.marks.get(peer_id)
    if known is None or (known.term, known.index) < (member.term, index):
        here = member.log.begin_index <= index
        index_term = member.log.term_at(index) if here else BEFORE_FIRST
        member.marks[peer_id] = Mark(member.term, index, index_term)


def note_all(member: MemberState) -> None:
    """Record the entries that peers have confirmed to this leader; on a follower, record the
    entries that its leader, which counts its own disk, has reported as committed.
    """
    match member.role_state:
        case Leader(progress=progress):
            for peer_id, one in progress.items():
                if one.match_index > BEFORE_FIRST:
                    note(member, peer_id, one.match_index)
        case Follower(leader_id=str(leader_id), advertised_index=index):
            note(member, leader_id, index)
        case _:
            pass


def remembered(member: MemberState, peer_id: str) -> Mark | None:
    """Return the mark of a peer; None if there is none."""
    note_all(member)
    return member.marks.get(peer_id)


def replaced(member: MemberState, peer_id: str) -> None:
    """Forget the entries that a peer confirmed in the log that this leader makes it replace."""
    known = member.marks.get(peer_id)
    if known is not None and known.index < member.log.begin_index:
        member.marks[peer_id] = Mark(known.term, BEFORE_FIRST, BEFORE_FIRST)
