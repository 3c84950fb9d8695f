"""Why a message of a peer was not obeyed. Every one is counted, none of them changes anything."""

import enum


class RefusalCause(enum.Enum):
    """The first two contradict Raft itself: a member that sees one stops serving in that term."""

    OTHER_LEADER = "OTHER_LEADER"
    """The term has another leader already: one of the two is broken."""
    BELOW_COMMITTED = "BELOW_COMMITTED"
    """It would replace entries that are committed, or verified as the leader's."""
    EXPIRED_TERM = "EXPIRED_TERM"
    """The sender's term is over, which it may not know yet."""
    INDEX_GAP = "INDEX_GAP"
    """The entry before is not here, or another one: the leader goes on by comparing."""
    LEADER_LIVES = "LEADER_LIVES"
    """A candidate would depose a leader that this member hears."""
    JOINING = "JOINING"
    """This member has no memory yet of what it may have promised: see `joining`."""
    RECALLING = "RECALLING"
    """This member has just started, and asks whether its disk is the newest: see `recalling`."""
    UNKNOWN_MEMBER = "UNKNOWN_MEMBER"
    """It is for another member, or from none of this group; or an answer of one that was removed.
    """
    NO_VOTER = "NO_VOTER"
    """This member, a learner or removed, is asked to lead."""


CONTRADICTIONS = frozenset((RefusalCause.OTHER_LEADER, RefusalCause.BELOW_COMMITTED))
