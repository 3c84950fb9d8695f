"""The moments for which the nemesis waits."""

import enum


class Moment(enum.Enum):
    """When a fault does the most harm."""

    ELECTED = "elected"
    APPEND_SENT = "append_sent"
    FLUSH_BEGUN = "flush_begun"
    TRUNCATED = "truncated"
    STANDS = "stands"
    """A member asks whether it would be elected."""
    CHANGES = "changes"
    """A leader writes a change of the membership."""
    HANDS_OVER = "hands_over"
    """A leader asks another member to stand."""
    FETCHES = "fetches"
    """A member asks another for a part of a snapshot, or has written one."""
