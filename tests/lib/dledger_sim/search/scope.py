"""The scope of a search: sizes and counts up to which it follows every run."""

from dataclasses import dataclass

from dledger_node.raft.membership import Change, Membership


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Bounds of one search."""

    member_count: int = 3
    terms_max: int = 1
    entries_max: int = 2
    """Entries in one log; the first entry of each leader counts."""
    heartbeat_rounds_max: int = 2
    candidates_max: int = 3
    """The number of members that may stand for election."""
    flush_apart: bool = True
    """Whether anything may happen between a write and its flush. Otherwise each write is flushed at
    once, and only a crash may come between write and flush.
    """
    crashes_max: int = 0
    """Crashes of all members together. A member starts again at once: a longer outage equals one in
    which its messages arrive late or never.
    """
    recalls: bool = False
    """Whether a restarted member asks its peers if its disk was rolled back (`recalling`). It waits
    until all have answered, or for any shorter time.
    """
    first: Membership | None = None
    """The founding membership; None makes every member a voter."""
    changes: tuple[Change, ...] = ()
    """Membership changes that a leader may be asked for while its log has no change."""

    stranger_entries: int = 0
    """Entries of another group, all committed by its own checkpoint, with which the last member
    starts; 0 lets it start with an empty log, like the others.
    """

    def __post_init__(self) -> None:
        if self.stranger_entries and (self.crashes_max or self.changes):
            raise ValueError("a scope with a stranger has neither crashes nor changes")
        if self.changes and self.crashes_max:
            raise ValueError(
                "a scope with both changes and crashes is not supported: the judge cannot count "
                "the voters of a change that a crash loses"
            )
