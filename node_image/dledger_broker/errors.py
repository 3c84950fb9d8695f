"""The broker's errors.

BrokerError
├── NotABrokerLogError     the log has an entry that no broker of this version wrote
└── QueueFilesError        consume queues cannot be read or written
"""


class BrokerError(Exception):
    """The base of all errors of this package."""


class NotABrokerLogError(BrokerError):
    """The log has an entry that no broker of this version wrote, so nothing after it has a meaning.

    The member must neither apply further entries nor serve as a broker.
    """

    def __init__(self, index: int, detail: str) -> None:
        super().__init__(
            f"entry {index} is not a message of a broker of this version: {detail}. Serve this "
            "group without a broker, or with a newer version"
        )
        self.index = index


class QueueFilesError(BrokerError):
    """Consume queues cannot be read or written; the message names the file."""
