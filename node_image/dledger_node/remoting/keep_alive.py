"""Notice that the other end's host has vanished, although nothing resets the connection."""

import socket
from typing import Final

PROBE_INTERVAL_S: Final = 1
"""Seconds for which a connection may be idle before the kernel probes the other host."""


def keep_alive(opened: socket.socket | None, dead_after_ms: int) -> None:
    """Let the kernel end a connection whose other end does not answer for `dead_after_ms`.

    `opened` is the socket of a transport; None if it has none.
    """
    if opened is None:
        return
    # Without this, the kernel retries for minutes when the other host has vanished.
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, dead_after_ms)
    # The timeout above counts unanswered data; an idle link has none, so the kernel probes.
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_INTERVAL_S)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_INTERVAL_S)
