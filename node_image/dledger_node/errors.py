"""The node's errors.

NodeError
├── StoreError              the files under this member
│   ├── StoreFullError      no room for another segment; nothing was written
│   ├── StoreDamagedError   what is on disk cannot be trusted; the message names file and offset
│   └── StoreInUseError     another process holds the folder
├── ListenError             the port cannot be had
└── RemoteProtocolError     a peer or client sent bytes that no sane one sends; its connection is
closed
"""

import enum


class NodeError(Exception):
    """Anything that this package raises on purpose."""


class StoreError(NodeError):
    """The files under this member."""


class StoreFullError(StoreError):
    """No room for another segment; nothing of the batch was written."""


class Damage(enum.StrEnum):
    """What is wrong with a store: the verdict of recovery, and of every read."""

    BAD_ENTRY = "BadEntry"
    """An entry that was durable is not what was written: its own checksums say so."""
    MISSING_ENTRIES = "MissingEntries"
    """The log ends before entries that were durable."""
    MISSING_SEGMENT = "MissingSegment"
    """The data files leave a gap, or the first of them are gone."""
    WRONG_INDEX = "WrongIndex"
    """The index files disagree with the data; opening with everything verified makes them anew."""
    UNREADABLE = "Unreadable"
    """The disk gives an error where entries should be."""
    UNKNOWN_FORMAT = "UnknownFormat"
    """A file that no segment is, or records of a kind that this version does not know."""
    HARD_STATE = "HardState"
    """Term and vote cannot be read, or are older than the log."""
    BAD_SNAPSHOT = "BadSnapshot"
    """No snapshot can be read, and the entries that would make its state anew were removed."""
    NO_SNAPSHOT = "NoSnapshot"
    """The same, and nothing shows that there ever was one: the group may have had no state."""
    MEMBERSHIPS = "Memberships"
    """The file that says who belongs to the group was lost, or cannot be read."""
    DIVERGED = "Diverged"
    """The leader's entries do not follow this log: two logs differ that must not."""


class StoreDamagedError(StoreError):
    """What is on disk cannot be trusted; nothing was changed."""

    def __init__(self, message: str, damage: Damage, index: int | None = None) -> None:
        super().__init__(message)
        self.damage = damage
        self.index = index
        """The first entry that is damaged; None when that is not known."""


class StoreInUseError(StoreError):
    """Another process holds the folder."""


class ListenError(NodeError):
    """The port cannot be had: another process has it, or it is not this machine's."""


class RemoteProtocolError(NodeError):
    """The other side sent bytes that no sane one sends; the connection is closed and counted."""
