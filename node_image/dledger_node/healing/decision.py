"""What a member whose store is damaged should do about it: a pure decision, and its reasons.

A damaged log may have lost what its member confirmed, and a damaged `currterm` whom it voted for.
A member that came up with an empty disk is in the same case, and `raft.joining` argues why it may
take part again: it asks all others, takes the leader's log, and votes once it has what the leader
had then. Nothing of that argument needs the disk to be empty. So a damaged member keeps what of its
log is sound, and its term and vote if it has them, and joins. So does one whose snapshots are all
damaged and whose log begins behind them: it keeps its promises of votes and nothing else, is given
the leader's snapshot, and takes the log behind that. Nothing is mended in place: it would
vote all the while, on the word of checksums that an entry of Java's may not even have.

To join is safe at any time; when to begin is decided here, for while it joins there is one voter
less. A member begins only when that costs nothing: when a majority of the group, without it, names
a leader and joins nothing itself. Without one it stays out and looks again, so that a disk which
only was away for a moment brings its member back with all that it had.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dledger_node.errors import Damage
from dledger_node.raft import quorum
from dledger_node.raft.ready import HardState

SET_ASIDE_MAX: Final = 4
"""So often a log is set aside before its member is whole again; then its disk is to be replaced."""

FRONT_IS_LOST: Final = frozenset({Damage.BAD_SNAPSHOT, Damage.MEMBERSHIPS})
"""What lay before the log's first entry is not known: then nothing of the log is of use. As long as
it were kept, its leader had no reason to send what is missing.
"""

CURABLE: Final = frozenset(
    {
        *FRONT_IS_LOST,
        Damage.BAD_ENTRY,
        Damage.MISSING_ENTRIES,
        Damage.MISSING_SEGMENT,
        Damage.UNREADABLE,
        Damage.HARD_STATE,
    }
)
"""Not the other verdicts: files of an unknown format or size may be sound to another version or
with another setting; where there is no trace of a snapshot, a state may have been asked for of a
group that never had one, and then its leader has none to send; of two logs that differ, nobody
knows which is the right one; and a wrong index is made anew without anybody's help.
"""


class Remedy(enum.Enum):
    """What to do; all but the first two change the disk."""

    STAY_OUT = "stay out"
    LOOK_AGAIN = "look again"
    """Everything can be read by now."""
    NEW_INDEX = "new index"
    """The index files cannot be read, and all that they say can be had from the data."""
    JOIN = "join"
    """Set aside what is damaged, and join the group as one without a memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A remedy, and why it is no better one, for people."""

    remedy: Remedy
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A member whose store is damaged, by one of the CURABLE verdicts."""

    self_id: str
    others: Sequence[str]
    """All who may belong to the group besides, sorted."""
    log_is_sound: bool
    log_is_empty: bool
    index_is_sound: bool
    memory: HardState | None
    """Term and vote; None when they cannot be trusted."""
    set_aside_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What another member says of the group."""

    leader_id: str | None
    term: int
    joining: bool
    voters: Sequence[str]
    """Whom it takes for the group's voters."""


def plan(case: Case, words: Mapping[str, Word]) -> Plan:
    """Decide; `words` has those of the others that answered."""
    if case.log_is_sound and case.memory is not None:
        remedy = Remedy.LOOK_AGAIN if case.index_is_sound else Remedy.NEW_INDEX
        return _within_bounds(case, remedy)
    if case.memory is None and (case.log_is_empty or not case.log_is_sound):
        # Such a member would look like one of a new group, which has promised nothing to anybody.
        return _stay_out(
            "its log and its term are both damaged: nothing tells what it had promised"
        )
    if not case.others:
        return _stay_out("it is its group's only member, and nobody else has what it lacks")
    leader = _leader(case, words)
    if leader is None:
        return _stay_out(
            "it is healed once a majority of the group names a leader without it: "
            + ", ".join(_said(case, each, words.get(each)) for each in case.others)
        )
    if case.memory is not None and case.memory.alone and leader.term <= case.memory.term:
        return _stay_out("it was its group's only member, and nobody has led since")
    return _within_bounds(case, Remedy.JOIN)


def _within_bounds(case: Case, remedy: Remedy) -> Plan:
    if remedy is not Remedy.LOOK_AGAIN and case.set_aside_count >= SET_ASIDE_MAX:
        return _stay_out(
            f"files were set aside {case.set_aside_count} times before it was whole again: its "
            "disk is failing, replace the member"
        )
    return Plan(remedy=remedy)


def _leader(case: Case, words: Mapping[str, Word]) -> Word | None:
    """The word of a leader whom a majority of its voters follows, this member not counted."""
    sound = {each: words[each] for each in case.others if each in words}
    sound = {each: word for each, word in sound.items() if not word.joining}
    for leader_id, leader in sound.items():
        followers = [
            each
            for each, word in sound.items()
            if (word.leader_id, word.term) == (leader_id, leader.term) and each in leader.voters
        ]
        if leader_id in followers and quorum.is_majority(len(followers), len(leader.voters)):
            return leader
    return None


def _said(case: Case, member_id: str, word: Word | None) -> str:
    if word is None:
        return f"{member_id} does not answer"
    if word.joining:
        return f"{member_id} joins the group itself"
    if word.leader_id is None:
        return f"{member_id} knows no leader in term {word.term}"
    if word.leader_id == case.self_id:
        return f"{member_id} takes this member for the leader of term {word.term}"
    return f"{member_id} names {word.leader_id} in term {word.term}"


def _stay_out(reason: str) -> Plan:
    return Plan(remedy=Remedy.STAY_OUT, reason=reason)
