"""Reads of the disk in the threads of a program that is built on the member."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final


class ProgramReads:
    """Measures the reads under way. The health of the volume watches them: otherwise a member whose
    disk hangs only in its program's reads would keep leading.
    """

    what: Final = "a read of the program"

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._under_way: dict[object, float] = {}
        """When each read under way began, the oldest first."""

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Count the block as one read; any thread may call this.

        The block must not wait for anything but the disk.
        """
        read = object()
        with self._lock:
            self._under_way[read] = self._now_s()
        try:
            yield
        finally:
            with self._lock:
                del self._under_way[read]

    @property
    def in_flight_s(self) -> float:
        """How long the oldest read under way has taken so far; 0 if there is none."""
        with self._lock:
            began_s = next(iter(self._under_way.values()), None)
        return 0.0 if began_s is None else self._now_s() - began_s
