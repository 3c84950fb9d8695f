"""Why a member refused a peer's message. Refused messages are counted and have no other effect."""

import enum


class RefusalCause(enum.Enum):
    """The cause of a refusal.

    The first two violate Raft itself: a member that records one stops serving in that term.
    """

    OTHER_LEADER = "OTHER_LEADER"
    """The term already has another leader; one of the two is broken."""
    BELOW_COMMITTED = "BELOW_COMMITTED"
    """The request would replace entries that are committed, or verified to equal the leader's."""
    EXPIRED_TERM = "EXPIRED_TERM"
    """The sender's term is older than this member's."""
    INDEX_GAP = "INDEX_GAP"
    """This log lacks the entry before the push, or holds a different one; the leader probes next.
    """
    LEADER_LIVES = "LEADER_LIVES"
    """A candidate would depose a live leader."""
    JOINING = "JOINING"
    """This member does not know its earlier promises yet; see `joining`."""
    RECALLING = "RECALLING"
    """This member has just started and is checking that its disk is current; see `recalling`."""
    UNKNOWN_MEMBER = "UNKNOWN_MEMBER"
    """The message is for another member, or from an id outside the group; or it is a response from
    a removed member.
    """
    NO_VOTER = "NO_VOTER"
    """This member is asked to lead, but is a learner or was removed."""
    STATE_BEHIND = "STATE_BEHIND"
    """This member is asked to lead, but its state is behind (`yielding`)."""


CONTRADICTIONS = frozenset((RefusalCause.OTHER_LEADER, RefusalCause.BELOW_COMMITTED))
