"""Free ports below the kernel's ephemeral range, from a separate slice for each process."""

import functools
import os
import socket
from collections.abc import Iterator

FIRST_PORT = 20_000
LAST_PORT = 32_000
SLICE = 200


def free_ports() -> Iterator[int]:
    """Return the process's endless iterator of free loopback ports.

    All its callers share one: a port that was given to a member that is still starting looks free.
    """
    return _ports_of(os.getpid())


def consecutive_ports(count: int) -> int:
    """Return the first of so many free loopback ports that follow one another."""
    ports = free_ports()
    first = last = next(ports)
    while last - first + 1 < count:
        port = next(ports)
        first = first if port == last + 1 else port
        last = port
    return first


@functools.cache
def _ports_of(process_id: int) -> Iterator[int]:
    slices = (LAST_PORT - FIRST_PORT) // SLICE
    begin = FIRST_PORT + SLICE * (process_id % slices)
    while True:
        for port in range(begin, begin + SLICE):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    continue
            yield port
        begin = FIRST_PORT + (begin + SLICE - FIRST_PORT) % (SLICE * slices)
