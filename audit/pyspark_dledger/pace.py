"""Bounds how fast one member is read by all processes of a machine, or of a container, together.

Members serve clients while they are read, so a reader must leave them most of the bandwidth of
their disks and networks, at every moment. The processes share a small file per member, which has
the times until which the bytes read so far are accounted for: at the rate, and at twice the rate. A
process that has read more adds its bytes and sleeps until both times. So the average keeps to the
rate, and idle time is made up for at twice the rate at most. What is read is requested in small
parts, since a member sends each response as fast as it can.

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
CATCH_UP_FACTOR: Final = 2
"""How many times the rate a member is read at most, to make up for idle time."""
PARTS_PER_SECOND: Final = 50
PART_BYTES_MIN: Final = 64 << 10
_TIMES: Final = struct.Struct("<dd")


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

    @property
    def part_bytes(self) -> int:
        """How many bytes to request at once."""
        return max(PART_BYTES_MIN, self._bytes_per_second // PARTS_PER_SECOND)

    def spend(self, count: int) -> None:
        """Account for bytes that were read, and sleep until the rate allows the next ones."""
        now, taken_s = self._clock(), count / self._bytes_per_second
        with shared_files.locked(self._file) as descriptor:
            raw = os.pread(descriptor, _TIMES.size, 0)
            average, fastest = _TIMES.unpack(raw) if len(raw) == _TIMES.size else (now, now)
            average = max(average, now - CREDIT_S_MAX) + taken_s
            fastest = max(fastest, now) + taken_s / CATCH_UP_FACTOR
            os.pwrite(descriptor, _TIMES.pack(average, fastest), 0)
        until = max(average, fastest)
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
