"""Why a message cannot be read from its queue."""

from typing import Final

from dledger_broker.errors import QueueFilesError
from dledger_node.errors import StoreError


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


READ_ERRORS: Final = UnreadableError, QueueFilesError, StoreError, IndexError, OSError
"""What reading a queue or the log may raise, beside UnitRefusedError; the next attempt may succeed.
An IndexError says that the log has just lost the entry.
"""
