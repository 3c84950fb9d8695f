"""A connection that this member opens to another one, from the first frame for it to its end."""

import asyncio
from typing import Final, cast

from dledger_formats.net.dialing import dial
from dledger_node.remoting.keep_alive import keep_alive

DEAD_AFTER_MS: Final = 5000
"""About as long as a request waits for its answer."""


class DialedLink(asyncio.Protocol):
    """A connection to another member. Frames that are written before it is made wait for it.

    A link ends once, and cannot be used after that.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._opening: asyncio.Task[None] | None = None
        self._unsent: list[bytes] = []
        """Frames that wait for the connection."""
        self._has_ended = False

    @property
    def was_made(self) -> bool:
        """Whether the connection was made, so that the other member may have received frames."""
        return self._transport is not None

    def _dial(self, host: str, port: int) -> None:
        """Begin to connect."""
        self._opening = asyncio.create_task(self._open(host, port))

    async def _open(self, host: str, port: int) -> None:
        try:
            await dial(lambda: self, host, port)
        except OSError:
            self._end()

    def _write(self, frame: bytes) -> None:
        """Send a frame now, or once the connection is made."""
        if self._transport is None:
            self._unsent.append(frame)
        else:
            self._transport.write(frame)

    def _drop(self) -> None:
        """Close the connection at once, or open none."""
        if self._opening is not None:
            self._opening.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._ended()

    # -- overridden by each kind of link ---------------------------------------------------------

    def _made(self, transport: asyncio.Transport) -> None:
        """Prepare a new connection, before the waiting frames are sent."""

    def _ended(self) -> None:
        """Handle the loss of the connection, or the failure to make it."""

    # -- called by the event loop ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what waited for the connection."""
        # uvloop's transports are not subclasses, but have all of its methods.
        made = cast("asyncio.Transport", transport)
        if self._has_ended:
            made.abort()
            return
        # A pod that is gone sends no reset, and a request on the link to it would be lost.
        keep_alive(made.get_extra_info("socket"), DEAD_AFTER_MS)
        self._made(made)
        self._transport = made
        unsent, self._unsent = self._unsent, []
        if unsent:
            made.write(b"".join(unsent))

    def connection_lost(self, error: Exception | None) -> None:
        """End the link."""
        self._end()
