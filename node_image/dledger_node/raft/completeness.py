"""Whether a leader has shown that its log holds all entries that are committed here.

A leader that was elected by the rules holds every committed entry (Raft paper, Leader Completeness,
section 5.4). A leader of another group's log, or one that has lost entries, does not. So a member
does not take it for granted: it confirms only entries that this leader has asked about or pushed,
and nothing at all before the leader has shown that its log reaches this member's committed index.
One of these shows it:

- it asks about, or pushes, an entry at or after that index, and this log holds the same entry;
- it states a committed index at or after that one.

A correct leader shows it with its first probe of the term, for the entry before its own first one.
All later probes, too, concern entries at or after the committed index, or come when the leader has
committed that far: hints lead it back only to where the logs differ, and they agree up to that
index. A delayed or repeated message may show less, so showing too little proves nothing by itself.
Such a request is answered without a confirmation. The leader then pushes what follows the entry,
which either shows the rest, or is refused because it contradicts committed entries, or is found by
the shell not to follow this log's checksums (`shell.divergence`). From then on nothing is confirmed
either, until a push does follow.

The rule restricts confirmations and reports, and nothing else. The member keeps its vote, it may
stand for election, and it never truncates committed entries. This matters under AsyncFlush. If most
hosts lose power at once, a member may keep entries that are committed, by its own checkpoint, while
the others elect a leader without them. Nothing here distinguishes that leader from one of another
group, so nothing is recorded on disk, and no member is taken for a stranger. Such a member can
confirm nothing to that leader anyway: it would have to remove what it knows to be committed. So the
rule costs a group no member that it could count on. If the leader fails before it has committed an
entry of its own, the member with the longer log can still be elected, and its entries are saved.
"""

from dledger_node.raft.log_terms import BEFORE_FIRST
from dledger_node.raft.member_state import Follower, MemberState


def note_agreed(follower: Follower, index: int) -> None:
    """Record that the leader's log equals this log up to an index.

    The leader need not have shown that entry: if it asked about one that is removed here, this is
    the first that remains, which a leader that was elected by the rules has.
    """
    follower.verified_index = max(follower.verified_index, index)
    follower.matched_index = max(follower.matched_index, index)


def note_shown(follower: Follower, index: int) -> None:
    """Record that the leader's log reaches an index, by what it sent, asked about or stated."""
    follower.shown_index = max(follower.shown_index, index)


def is_shown(member: MemberState, follower: Follower) -> bool:
    """Return whether the leader has shown that it holds all entries that are committed here."""
    contradicts = follower.lacks_committed or follower.logs_differ
    return not contradicts and member.committed_index <= follower.shown_index


def confirmable_index(member: MemberState, follower: Follower) -> int:
    """Return the last entry that this leader has shown to be in both logs; -1 if it may lack
    entries that are committed here.
    """
    return follower.matched_index if is_shown(member, follower) else BEFORE_FIRST


def lacking(member: MemberState) -> str:
    """Return human-readable text: what this member's leader has not shown; empty if nothing."""
    match member.role_state:
        case Follower(leader_id=str(leader_id), logs_differ=True):
            return (
                f"pushes of {leader_id}, the leader of term {member.term}, do not follow this log, "
                f"although index and term are the same; {own_log(member)}. {REMEDY}"
            )
        case Follower(leader_id=str(leader_id)) as follower if not is_shown(member, follower):
            shown_index = follower.shown_index
            shown = f"its log up to entry {shown_index}" if shown_index >= 0 else "no entry"
            return (
                f"{leader_id}, the leader of term {member.term}, has shown {shown}, but "
                f"{own_log(member)}, so nothing is confirmed to {leader_id}. {REMEDY}"
            )
        case _:
            return ""


def own_log(member: MemberState) -> str:
    """Return human-readable text: up to where this log is committed, and where it ends."""
    log, index = member.log, member.committed_index
    term = log.term_at(max(index, log.begin_index)) if log.begin_index <= log.end_index else -1
    return (
        f"entries up to {index}, of term {term}, are committed here, and this log ends at entry "
        f"{log.end_index} of term {log.end_term}"
    )


REMEDY = (
    "If this lasts, one of the two logs is another group's, or hosts lost power with AsyncFlush: "
    "audit the group, and give the member with the wrong log an empty folder"
)
