"""Listening sockets that the kernel closes before all others if this process is killed.

Linux closes the files of a killed process from the highest number down. A listening socket would
have a low number, since it is opened before any connection. So the clients' connections would be
reset first. A client that connects again at once could then reach the dying process, whose kernel
still accepts connections, and resets them a moment later. A producer of RocketMQ has three tries
for a send, and would lose two of them in this way within milliseconds.
"""

import fcntl
import resource
import socket
from typing import Final

NUMBER_MAX: Final = 65_535
"""The kernel's table of a process' files is as long as the highest number, and needs memory."""
ROOM: Final = 64
"""How many of the highest numbers are for listening sockets."""


def listen(
    family: int, address: tuple[object, ...], *, backlog: int, is_shared: bool
) -> socket.socket:
    """Listen at an address; other processes may do so, too, if it is shared. Raises OSError."""
    low = socket.create_server(address, family=family, backlog=backlog, reuse_port=is_shared)
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        limit = NUMBER_MAX
    lowest = max(0, min(limit, NUMBER_MAX) - ROOM)
    try:
        high = fcntl.fcntl(low.fileno(), fcntl.F_DUPFD_CLOEXEC, lowest)
    except OSError:  # all of them are taken
        return low
    low.close()
    return socket.socket(fileno=high)
