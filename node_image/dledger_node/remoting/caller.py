"""The connection through which a call is answered, as the code that answers it sees it."""

from typing import Protocol

from dledger_formats.protocol.frames import Buffer


class Caller(Protocol):
    """The connection through which a call is answered."""

    address: str
    """The address of the other side's host."""

    def send(self, data: Buffer) -> None:
        """Send frames, or parts of one; does nothing if the connection is gone.

        The caller must not change `data` afterwards.
        """
