"""The client's errors.

ClientError
├── AddressError          a server address is invalid
├── GroupUnreachableError no leader accepted the request in time; it had no effect
├── RefusedError          the group refused the request; `code` says why; it had no effect
│   ├── NotLeaderError        the only member to ask is not the leader
│   └── NoEntryError          the index is past the end of the log or before its beginning
├── BadAnswerError        a response contains the wrong entries or damaged ones
├── OutcomeUnknownError   the request may have had its effect or may still have it
└── ConnectionLostError   a connection failed; `was_sent` says whether the request was sent
"""

from collections.abc import Sequence
from typing import ClassVar, Self

from dledger_formats.protocol.codes import DLedgerResponseCode


class ClientError(Exception):
    """Base class of every error that this package raises on purpose."""

    retriable: ClassVar[bool] = False
    """Whether repeating the call may succeed and cannot do harm."""


class AddressError(ClientError, ValueError):
    """A server address is invalid."""


class GroupUnreachableError(ClientError):
    """No leader accepted the request before its deadline. The request had no effect."""

    retriable: ClassVar[bool] = True

    @classmethod
    def without_leader(cls, group: str, waited_s: float, reasons: Sequence[str]) -> Self:
        """Make the error of a request that found no leader."""
        return cls(
            f"no leader of group {group} accepted the request within {waited_s:.1f} s; "
            + last_errors(reasons)
        )


class RefusedError(ClientError):
    """The group refused the request, which had no effect."""

    def __init__(self, code: DLedgerResponseCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class NotLeaderError(RefusedError):
    """The only member to ask is not the leader; `leader_id` is the leader that it knows of."""

    retriable: ClassVar[bool] = True

    def __init__(self, message: str, leader_id: str | None) -> None:
        super().__init__(DLedgerResponseCode.NOT_LEADER, message)
        self.leader_id = leader_id


class NoEntryError(RefusedError):
    """The index is past the end of the log (INDEX_OUT_OF_RANGE) or before its beginning."""


class BadAnswerError(ClientError):
    """A response contains entries that were not requested, or one that fails its checksum."""

    retriable: ClassVar[bool] = True


class OutcomeUnknownError(ClientError):
    """The request may have had its effect, or may still have it.

    An append that is resent may be in the log twice. A membership change may be repeated.
    """


class ConnectionLostError(ClientError):
    """A connection could not be opened, was lost, or timed out waiting for a response."""

    retriable: ClassVar[bool] = True

    def __init__(self, message: str, *, was_sent: bool) -> None:
        super().__init__(message)
        self.was_sent = was_sent
        """Whether the request may have reached the other side."""


def last_errors(reasons: Sequence[str]) -> str:
    """Return the end of a message that says what each server did."""
    return f"last error{'s' * (len(reasons) > 1)}: {'; '.join(reasons)}"
