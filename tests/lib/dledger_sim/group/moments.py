"""The moments at which the nemesis may strike."""

import enum


class Moment(enum.Enum):
    """A moment at which a fault is especially harmful."""

    ELECTED = "elected"
    APPEND_SENT = "append_sent"
    FLUSH_BEGUN = "flush_begun"
    TRUNCATED = "truncated"
    STANDS = "stands"
    """A member sends pre-vote requests."""
    CHANGES = "changes"
    """A leader writes a membership change."""
    HANDS_OVER = "hands_over"
    """A leader asks the target of a transfer to stand for election."""
    FETCHES = "fetches"
    """A member requests a chunk of a snapshot, or has written one."""
