"""Why a message cannot be read from its queue."""


class UnitRefusedError(Exception):
    """A unit contradicts the log, or is missing; the queues must be built again."""


class UnreadableError(Exception):
    """The log cannot be read there now: it is damaged, and the member mends it."""


class NotBuiltError(UnreadableError):
    """The queue lacks its newest units, which will come."""


class UnprovedError(UnreadableError):
    """The log has not shown yet whether the message is removed; it is asked again."""


class NotCachedError(UnreadableError):
    """The message must be read from the disk, or is too long to be read in the event loop."""


class DeletedError(UnreadableError):
    """The message belongs to a topic that was deleted; there may be another of the same name."""
