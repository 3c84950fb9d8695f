"""A lock for file systems that have none: a file that its holder renews.

The file names its holder and a number, which rises with each renewal. Another run is refused as
soon as it sees the number change. It takes the lock over once the number has stayed the same for
`STALE_S`, because then the holder was killed. No clocks of two machines are compared. A holder that
continues after so long a pause notices that it has lost the lock, at the latest right before it
writes, renames or removes something.
"""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Final, Protocol

RENEWAL_S: Final = 10.0
STALE_S: Final = 60.0
LOOK_S: Final = 2.0
"""How often a run that waits looks at the lock."""


class LockFiles(Protocol):
    """The files of one folder. Every method may raise an error of the file system."""

    def create(self, name: str) -> bool:
        """Create an empty file; return False if it exists. Only one of several callers succeeds."""

    def read(self, name: str) -> bytes | None:
        """Return the content; None if the file does not exist."""

    def write(self, name: str, content: bytes) -> None:
        """Replace the content."""

    def move(self, name: str, to: str) -> bool:
        """Rename a file; return False if it does not exist, or the other name is taken."""

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""


class LockHeldError(Exception):
    """Another run holds the lock."""


class RenewedLock:
    """One run's lock of one folder."""

    def __init__(
        self,
        files: LockFiles,
        name: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._files = files
        self._name = name
        self._clock = clock
        self._sleep = sleep
        self._holder = uuid.uuid4().hex.encode()
        self._renewals = 0
        self._renewed_s = 0.0
        """When the lock was written last, by the clock."""
        self._is_written = True
        """Whether the last write of the lock has succeeded."""
        self._alone = threading.Lock()

    def acquire(self) -> None:
        """Take the lock, also from a run that was killed. Raises LockHeldError."""
        seen, since_s = None, 0.0
        while not self._files.create(self._name):
            found = self._files.read(self._name)
            if found is not None and seen is not None and found != seen:
                raise LockHeldError
            if found is None or seen is None:
                seen, since_s = found, self._clock()
            elif self._clock() - since_s >= STALE_S:
                self._take_over(found)
                seen = None
                continue
            self._sleep(LOOK_S)
        self._write()

    def check(self) -> None:
        """Renew the lock. Raises LockHeldError if it was lost."""
        with self._alone:
            if not self._is_mine():
                raise LockHeldError
            self._renewals += 1
            self._write()

    def release(self) -> None:
        """Remove the lock, unless it was lost."""
        with self._alone:
            if self._is_mine():
                self._files.remove(self._name)

    @contextlib.contextmanager
    def renewed(self) -> Iterator[None]:
        """Renew the lock in a thread during the block. An error there recurs in `check`."""
        ended = threading.Event()

        def renew() -> None:
            while not ended.wait(RENEWAL_S):
                # What fails here fails again in `check` before the run changes something.
                with contextlib.suppress(Exception):
                    self.check()

        thread = threading.Thread(target=renew, name="lock", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _is_mine(self) -> bool:
        """Return whether this run still holds the lock.

        A failed renewal may or may not have written its number, or may have emptied the file. No
        other run takes such a file over before it has stayed the same for STALE_S.
        """
        found = self._files.read(self._name)
        if found is None or found.startswith(self._holder):
            return found is not None
        is_torn = not self._is_written and self._holder.startswith(found)
        return is_torn and self._clock() - self._renewed_s < STALE_S

    def _write(self) -> None:
        self._is_written, begun_s = False, self._clock()
        self._files.write(self._name, b"%s %d" % (self._holder, self._renewals))
        self._is_written, self._renewed_s = True, begun_s

    def _take_over(self, found: bytes) -> None:
        """Remove a dead run's lock. Raises LockHeldError if another run took it over first."""
        aside = f"{self._name}.{self._holder.decode()}"
        if not self._files.move(self._name, aside):
            return
        if self._files.read(aside) != found:
            self._files.move(aside, self._name)
            raise LockHeldError
        self._files.remove(aside)
