"""Marks: the last promise of each peer that this member knows, in case the peer loses it.

Marks are kept in memory only. `recalling` explains their use.
"""

from dledger_node.raft import completeness, electorate
from dledger_node.raft.log_terms import BEFORE_FIRST
from dledger_node.raft.member_state import Follower, Leader, MemberState
from dledger_node.raft.recall_messages import Mark


def note(member: MemberState, peer_id: str, index: int, *, end_index: int | None = None) -> None:
    """Record a peer's promise in this term: a vote if `index` is -1; otherwise that its disk holds
    this member's entries up to `index`. With AsyncFlush it holds, perhaps only in memory, those up
    to `end_index`, which is `index` by default.
    """
    if not electorate.belongs(member, peer_id):
        return
    known = member.marks.get(peer_id)
    end = member.log.end_at(index if end_index is None else end_index)
    if known is not None:
        end = max(end, known.end)
    if known is None or (known.term, known.index) < (member.term, index):
        here = member.log.begin_index <= index
        index_term = member.log.term_at(index) if here else BEFORE_FIRST
        member.marks[peer_id] = Mark(
            member.term,
            index,
            index_term,
            end=end,
            is_whole=isinstance(member.role_state, Leader) and index_term == member.term,
        )
    elif end > known.end:
        member.marks[peer_id] = known._replace(end=end)


def note_all(member: MemberState) -> None:
    """Record the entries that peers have confirmed to this leader; on a follower, record the
    entries that its leader, which counts its own disk, has reported as committed.

    With AsyncFlush the leader may have committed all that this follower confirmed to it, and may
    lose it in a power loss.
    """
    match member.role_state:
        case Leader(progress=progress):
            for peer_id, one in progress.items():
                if one.match_index > BEFORE_FIRST:
                    note(member, peer_id, one.match_index)
        case Follower(leader_id=str(leader_id), advertised_index=index) as follower:
            held_index = min(member.durable_index, completeness.confirmable_index(member, follower))
            note(member, leader_id, index, end_index=held_index)
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
        member.marks[peer_id] = Mark(known.term, BEFORE_FIRST, BEFORE_FIRST, end=known.end)
