"""The client's errors.

ClientError
├── AddressError          a server was named in a way that cannot be read
├── GroupUnreachableError no leader took the request in time; it had no effect
├── RefusedError          the group answered no; `code` says why; the request had no effect
│   ├── NotLeaderError        the member asked is not the leader, and was to be asked alone
│   └── NoEntryError          there is no entry at that index (any more)
├── BadAnswerError        an answer holds entries that were not asked for, or damaged ones
├── OutcomeUnknownError   an append may or may not have happened, now or later
└── ConnectionLostError   a connection could not be made, or ended; `was_sent` tells which
"""

from typing import ClassVar

from dledger_formats.protocol.requests import DLedgerResponseCode


class ClientError(Exception):
    """Anything that this package raises on purpose."""

    retriable: ClassVar[bool] = False
    """Whether the same call may succeed later and cannot do harm twice."""


class AddressError(ClientError, ValueError):
    """A server was named in a way that cannot be read."""


class GroupUnreachableError(ClientError):
    """No leader took the request before its deadline, and none had been sent it: it had no
    effect.
    """

    retriable: ClassVar[bool] = True


class RefusedError(ClientError):
    """The group answered no, and the request had no effect."""

    def __init__(self, code: DLedgerResponseCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class NotLeaderError(RefusedError):
    """The one member that was to be asked does not lead; `leader_id` is the leader it knows of."""

    retriable: ClassVar[bool] = True

    def __init__(self, message: str, leader_id: str | None) -> None:
        super().__init__(DLedgerResponseCode.NOT_LEADER, message)
        self.leader_id = leader_id


class NoEntryError(RefusedError):
    """There is no entry at that index: not yet (INDEX_OUT_OF_RANGE), or not any more."""


class BadAnswerError(ClientError):
    """An answer holds entries that were not asked for, or one that its checksum disowns."""

    retriable: ClassVar[bool] = True


class OutcomeUnknownError(ClientError):
    """The append may have happened, or may still happen. Sending it again may append it twice."""


class ConnectionLostError(ClientError):
    """A connection could not be made, ended, or gave no answer in time."""

    retriable: ClassVar[bool] = True

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent
        """Whether the request may have reached the other side."""
