"""Bounds how fast one member is read by all processes of a machine, or of a container, together.

Members serve clients while they are read, so a reader must leave them most of the bandwidth of
their disks and networks. The processes share a small file per member, which has the time until
which the bytes read so far are accounted for. A process that has read more adds its bytes and
sleeps until that time. So the average keeps to the rate, and a member sends at most one response
per process at once.

The environment has the rate and the folder (`shared_files`).
"""

import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark_dledger import shared_files

VARIABLE: Final = "DLEDGER_READ_PACE"
CREDIT_S_MAX: Final = 1.0
"""How much idle time may be made up for."""
_TIME: Final = struct.Struct("<d")


class Pace:
    """The reading of one member."""

    def __init__(
        self,
        file: Path,
        bytes_per_second: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Share a file with the other processes.

        `clock` must be the same for all of them, such as the machine's monotonic clock.
        """
        self._file = file
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._sleep = sleep

    def spend(self, count: int) -> None:
        """Account for bytes that were read, and sleep until the rate allows the next ones."""
        now = self._clock()
        with shared_files.locked(self._file) as descriptor:
            raw = os.pread(descriptor, _TIME.size, 0)
            before = _TIME.unpack(raw)[0] if len(raw) == _TIME.size else now
            until = max(before, now - CREDIT_S_MAX) + count / self._bytes_per_second
            os.pwrite(descriptor, _TIME.pack(until), 0)
        if until > now:
            self._sleep(until - now)


@contextmanager
def paced(bytes_per_second: int) -> Iterator[None]:
    """Read each member at this rate within the block, also in processes that are started there.

    0 sets no bound.
    """
    if not bytes_per_second:
        yield
        return
    with shared_files.shared(VARIABLE, bytes_per_second, "dledger-pace-"):
        yield


def pace_of(place: str) -> Pace | None:
    """Return the pace at which a member may be read; None without a bound."""
    found = shared_files.bound_of(VARIABLE, place)
    return None if found is None else Pace(found[1], int(found[0]))
