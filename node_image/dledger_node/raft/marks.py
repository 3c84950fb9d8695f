"""What a member remembers of what others have promised to it, for those that may have forgotten.

It is kept in memory, in this life alone; who asks for it, and why, is in `recalling`.
"""

from dledger_node.raft import electorate
from dledger_node.raft.log_terms import BEFORE_FIRST
from dledger_node.raft.member_state import Follower, Leader, MemberState
from dledger_node.raft.recall_messages import Mark


def note(member: MemberState, peer_id: str, index: int) -> None:
    """Remember that a peer has promised something in this term: that its disk holds the entries up
    to `index`, as they are here, or -1 for none.
    """
    if not electorate.belongs(member, peer_id):
        return
    known = member.marks.get(peer_id)
    if known is None or (known.term, known.index) < (member.term, index):
        here = member.log.begin_index <= index
        index_term = member.log.term_at(index) if here else BEFORE_FIRST
        member.marks[peer_id] = Mark(member.term, index, index_term)


def note_all(member: MemberState) -> None:
    """Remember what peers have confirmed to this leader, or what this follower's leader, who counts
    its own disk, has said to be committed.
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
    """What to tell a peer that asks."""
    note_all(member)
    return member.marks.get(peer_id)


def replaced(member: MemberState, peer_id: str) -> None:
    """Forget what a peer confirmed of a log that it is about to drop, by this leader's wish."""
    known = member.marks.get(peer_id)
    if known is not None and known.index < member.log.begin_index:
        member.marks[peer_id] = Mark(known.term, BEFORE_FIRST, BEFORE_FIRST)
