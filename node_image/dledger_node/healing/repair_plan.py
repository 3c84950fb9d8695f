"""Decide how to repair a member whose store is damaged; no IO.

A damaged log may have lost entries that its member confirmed, and a damaged `currterm` the vote
that it cast. A member with an empty disk is in the same situation; `raft.joining` explains why it
may take part again: it asks all other members, fetches the leader's log, and votes once it has what
the leader had then. The argument does not need the disk to be empty. So a damaged member keeps the
sound part of its log, and its term and vote if it has them, and joins. A member whose snapshots are
all damaged and whose log begins after them keeps only its term and vote; its leader sends a
snapshot and the log after it. All this applies only to damage that `mending` could not mend in
place: to entries that are not known to be committed, or whose checksums do not prove their content.

Joining is safe at any time, but while the member joins, the group has one voter fewer. So it begins
only when that costs nothing: when a majority of the group, without this member, names a leader and
is not joining itself. Otherwise the member stays out and checks again, so that it returns with all
its data if its disk was only temporarily unavailable.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dledger_node.errors import Damage
from dledger_node.raft import quorum
from dledger_node.raft.ready import HardState

SET_ASIDE_MAX: Final = 4
"""Maximum number of times that files are set aside before the member is healed; after that, its
disk must be replaced.
"""

FRONT_IS_LOST: Final = frozenset({Damage.BAD_SNAPSHOT, Damage.MEMBERSHIPS})
"""Damage that loses the state before the log's first entry. Then no part of the log is kept: with a
log, the leader would have no reason to send the missing state.
"""

REPAIRABLE: Final = frozenset(
    {
        *FRONT_IS_LOST,
        Damage.BAD_ENTRY,
        Damage.MISSING_ENTRIES,
        Damage.MISSING_SEGMENT,
        Damage.UNREADABLE,
        Damage.HARD_STATE,
    }
)
"""Other damage is not repaired. Files of an unknown format or size may be sound for another version
or setting. Without a trace of a snapshot, the group may never have had a state, and its leader has
none to send. If two logs differ, it is unknown which one is right. A wrong index is rebuilt at the
next opening anyway.
"""


class RepairAction(enum.Enum):
    """The actions of a damaged member; the first two leave the disk unchanged."""

    STAY_OUT = "stay out"
    REOPEN = "reopen"
    """The store can be read again, so the damage was temporary."""
    REBUILD_INDEX = "rebuild index"
    """Set aside the unreadable index files; the next opening rebuilds them from the data."""
    JOIN = "join"
    """Set aside the damaged files, and join the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlan:
    """An action, and for STAY_OUT a human-readable reason."""

    action: RepairAction
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedMember:
    """A member whose store has REPAIRABLE damage."""

    self_id: str
    peer_ids: Sequence[str]
    """All other members that may belong to the group, sorted."""
    log_is_sound: bool
    log_is_empty: bool
    index_is_sound: bool
    hard_state: HardState | None
    """Term and vote; None if they cannot be trusted."""
    set_aside_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerReport:
    """A peer's view of the group."""

    leader_id: str | None
    term: int
    joining: bool
    voters: Sequence[str]
    """The voters of the group in the peer's view."""


def plan_repair(member: DamagedMember, reports: Mapping[str, PeerReport]) -> RepairPlan:
    """Decide what to do; `reports` holds the reports of the peers that answered."""
    hard_state = member.hard_state
    if member.log_is_sound and hard_state is not None:
        action = RepairAction.REOPEN if member.index_is_sound else RepairAction.REBUILD_INDEX
        return _within_bounds(member, action)
    if hard_state is None and (member.log_is_empty or not member.log_is_sound):
        # The member would look like one of a new group, which has made no promises.
        return _stay_out(
            "its log and its term are both damaged, so nothing shows what it has promised"
        )
    if not member.peer_ids:
        return _stay_out("it is the only member of its group, so no other member has the data")
    leader = _leader(member, reports)
    if leader is None:
        return _stay_out(
            "healing starts once a majority of the group, without this member, names a leader: "
            + ", ".join(_describe(member, each, reports.get(each)) for each in member.peer_ids)
        )
    if hard_state is not None and hard_state.alone and leader.term <= hard_state.term:
        return _stay_out("it was the only member of its group, and no member has led since")
    return _within_bounds(member, RepairAction.JOIN)


def _within_bounds(member: DamagedMember, action: RepairAction) -> RepairPlan:
    if action is not RepairAction.REOPEN and member.set_aside_count >= SET_ASIDE_MAX:
        return _stay_out(
            f"files were set aside {member.set_aside_count} times before it was healed: its disk "
            "is failing. Replace the member"
        )
    return RepairPlan(action=action)


def _leader(member: DamagedMember, reports: Mapping[str, PeerReport]) -> PeerReport | None:
    """Return the report of a leader that a majority of its voters follows, without this member."""
    sound = {each: reports[each] for each in member.peer_ids if each in reports}
    sound = {each: report for each, report in sound.items() if not report.joining}
    for leader_id, leader in sound.items():
        followers = [
            each
            for each, report in sound.items()
            if (report.leader_id, report.term) == (leader_id, leader.term) and each in leader.voters
        ]
        if leader_id in followers and quorum.is_majority(len(followers), len(leader.voters)):
            return leader
    return None


def _describe(member: DamagedMember, peer_id: str, report: PeerReport | None) -> str:
    if report is None:
        return f"{peer_id} does not answer"
    if report.joining:
        return f"{peer_id} is joining the group itself"
    if report.leader_id is None:
        return f"{peer_id} knows no leader in term {report.term}"
    if report.leader_id == member.self_id:
        return f"{peer_id} names this member as the leader of term {report.term}"
    return f"{peer_id} names {report.leader_id} in term {report.term}"


def _stay_out(reason: str) -> RepairPlan:
    return RepairPlan(action=RepairAction.STAY_OUT, reason=reason)
