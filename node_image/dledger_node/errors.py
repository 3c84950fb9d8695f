"""The node's errors.

NodeError
├── StoreError              this member's files failed
│   ├── StoreFullError      no room for another segment; nothing was written
│   ├── StoreDamagedError   files cannot be trusted; the message names file and offset
│   │   ├── BorderDamagedError  the last entry that retention removes now has rotted
│   │   └── CutShortError       a file ends before bytes that it should have
│   ├── StoreInUseError     another process holds the folder
│   ├── ForeignFolderError  the folder belongs to another group
│   └── LaterFormatError    a later release wrote the folder; nothing was changed
├── NotYetCommittedError    the bytes asked for are not known to be committed yet
├── ListenError             the port cannot be opened
└── RemoteProtocolError     a peer or client sent invalid bytes; its connection is closed
    ├── LogsDifferError     a leader's entries do not follow the entry that both logs should share
    └── LinkRefusedError    the sender of a HELLO may not open a link
"""

import enum


class NodeError(Exception):
    """The base of all errors of this package."""


class StoreError(NodeError):
    """This member's files failed."""


class StoreFullError(StoreError):
    """The volume has no room for a segment or a small file."""


class Damage(enum.StrEnum):
    """The kind of damage that recovery or a read has found in a store."""

    BAD_ENTRY = "BadEntry"
    """The checksums of a durable entry do not match."""
    MISSING_ENTRIES = "MissingEntries"
    """The log ends before entries that were durable."""
    MISSING_SEGMENT = "MissingSegment"
    """A data file in the middle or at the front of the log is missing."""
    WRONG_INDEX = "WrongIndex"
    """The index files disagree with the data; opening with full verification rebuilds them."""
    UNREADABLE = "Unreadable"
    """The disk cannot read entries."""
    UNKNOWN_FORMAT = "UnknownFormat"
    """A file is not a segment, or holds records of a kind that this version does not know."""
    HARD_STATE = "HardState"
    """Term and vote cannot be read, or are older than the log."""
    BAD_SNAPSHOT = "BadSnapshot"
    """No snapshot can be read, and the entries to rebuild its state were removed."""
    NO_SNAPSHOT = "NoSnapshot"
    """Like BAD_SNAPSHOT, but without a trace of a snapshot: the group may have had no state."""
    MEMBERSHIPS = "Memberships"
    """The file of committed memberships was lost or cannot be read."""
    DIVERGED = "Diverged"
    """The leader's entries do not follow this log: the two logs differ where they must be equal."""


class StoreDamagedError(StoreError):
    """Files cannot be trusted; nothing was changed."""

    def __init__(self, message: str, damage: Damage, index: int | None = None) -> None:
        super().__init__(message)
        self.damage = damage
        self.index = index
        """The first damaged entry; None if unknown."""


class BorderDamagedError(StoreDamagedError):
    """The last entry that retention is about to remove has rotted, so it cannot prove the first one
    that stays. Mending it would restore that proof, but no member needs the entry itself.
    """


class CutShortError(StoreDamagedError):
    """A file ends before bytes that it should have."""

    def __init__(self, message: str, size: int) -> None:
        super().__init__(message, Damage.UNREADABLE)
        self.size = size
        """The size that the file still has; everything after it is missing."""


class NotYetCommittedError(NodeError, LookupError):
    """The bytes lie beyond the entries that the member so far knows to be committed, or the member
    is closing its store and cannot say whether they do.
    """


class StoreInUseError(StoreError):
    """Another process holds the folder."""


class ForeignFolderError(StoreError):
    """The folder belongs to another group; nothing was changed."""


class LaterFormatError(StoreError):
    """A later release wrote files that this one does not understand; nothing was changed."""


class ListenError(NodeError):
    """The port cannot be opened: another process uses it, or the address is not local."""


class RemoteProtocolError(NodeError):
    """The other side sent invalid bytes; the connection is closed and counted."""


class LogsDifferError(RemoteProtocolError):
    """Pushed entries, sound by themselves, do not follow this log's entry before them, although
    that entry has the index and term that the leader names.
    """


class LinkRefusedError(RemoteProtocolError):
    """The sender of a HELLO may not open a link. It got the reason; its connection is closed."""
