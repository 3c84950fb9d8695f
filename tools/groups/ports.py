"""Free ports below the kernel's ephemeral range, from a separate slice for each process."""

import contextlib
import functools
import os
import socket
from collections.abc import Iterator

FIRST_PORT = 20_000
LAST_PORT = 32_000
SLICE = 200
SLICES = (LAST_PORT - FIRST_PORT) // SLICE


def free_ports() -> Iterator[int]:
    """Return the process's endless iterator of free loopback ports.

    A process has a slice of its own. All its callers share one iterator, because a port of a member
    that is still starting looks free.
    """
    return _ports_of(os.getpid())


def consecutive_ports(count: int) -> int:
    """Return the first of `count` consecutive free loopback ports."""
    ports = free_ports()
    first = last = next(ports)
    while last - first + 1 < count:
        port = next(ports)
        first = first if port == last + 1 else port
        last = port
    return first


@functools.cache
def _ports_of(process_id: int) -> Iterator[int]:
    number, claim = _claim_slice(process_id)
    with claim:
        while True:
            begin, given = FIRST_PORT + SLICE * number, 0
            for port in range(begin, begin + SLICE):
                if _is_free(port):
                    given += 1
                    yield port
            if not given:
                number = (number + 1) % SLICES


def _claim_slice(process_id: int) -> tuple[int, socket.socket]:
    """Return the number of a slice, and the socket that reserves it for this process.

    The port of a killed member looks free to other processes until the member starts again. If
    there are more processes than slices, some share one.
    """
    for number in range(process_id, process_id + SLICES):
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with contextlib.suppress(OSError):
            claim.bind(f"\0dledger-ports-{number % SLICES}")  # the kernel drops it with the process
            return number % SLICES, claim
        claim.close()
    return process_id % SLICES, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
