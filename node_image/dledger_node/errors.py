"""The node's errors.

NodeError
├── StoreError              the files under this member
│   ├── StoreFullError      no room for another segment; nothing was written
│   ├── StoreDamagedError   what is on disk cannot be trusted; the message names file and offset
│   └── StoreInUseError     another process holds the folder
└── RemoteProtocolError     a peer or client sent bytes that no sane one sends; its connection is
closed
"""


class NodeError(Exception):
    """Anything that this package raises on purpose."""


class StoreError(NodeError):
    """The files under this member."""


class StoreFullError(StoreError):
    """No room for another segment; nothing of the batch was written."""


class StoreDamagedError(StoreError):
    """What is on disk cannot be trusted; nothing was changed."""


class StoreInUseError(StoreError):
    """Another process holds the folder."""


class RemoteProtocolError(NodeError):
    """The other side sent bytes that no sane one sends; the connection is closed and counted."""
