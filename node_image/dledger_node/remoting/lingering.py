"""The orderly end of a client's connection: no answer that was written is lost.

If a socket is closed while received bytes lie unread in it, or arrive later, the kernel answers
with a reset. The reset makes the other side drop the answers that it has not read yet, and
clients that keep many requests in flight always have some on the way. So a member that stops ends
only its sending side (FIN). It keeps reading, discards what it reads, and closes once the other
side has closed. A client that understands GO_AWAY gets that frame before the FIN: it says that
none of the discarded requests was handled.

The other side may never close, or never stop sending. So, once all connections have been ended,
`Gate.ended` waits for at most LINGER_S, and DISCARDED_BYTES_MAX bounds what is read.
"""

import asyncio
from collections.abc import Callable
from typing import Final

LINGER_S: Final = 1.0
"""A member that stops waits at most this long for all clients to close their connections."""
DISCARDED_BYTES_MAX: Final = 16 << 20
"""One connection may send this many bytes in that time. The kernels of both sides and the client's
own buffer hold fewer, so a client that stops sending at the FIN stays below this limit.
"""


class Lingering(asyncio.Protocol):
    """Takes the place of a connection whose sending side has ended."""

    def __init__(
        self, transport: asyncio.Transport, lost: Callable[[Exception | None], None]
    ) -> None:
        """`lost` is called when the connection is closed."""
        self._transport = transport
        self._lost = lost
        self._discarded_bytes = 0

    def data_received(self, data: bytes) -> None:
        """Discard what the other side sent, unless it sends too much."""
        self._discarded_bytes += len(data)
        if self._discarded_bytes > DISCARDED_BYTES_MAX:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Report that the connection is closed."""
        self._lost(error)


def linger(transport: asyncio.Transport, lost: Callable[[Exception | None], None]) -> None:
    """End the sending side after what was written, and discard what arrives from now on."""
    transport.set_protocol(Lingering(transport, lost))
    try:
        transport.write_eof()
    except OSError:  # the other side has reset the connection, and the loop has not noticed yet
        transport.abort()
        return
    transport.resume_reading()
