"""Children that tell a story through a pipe until they are ended."""

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

from dledger_store_faults.story import Story, Tell

STEPS_MAX = 100_000


class Child:
    """A forked process that writes to a store; its lines arrive whole or not at all."""

    def __init__(self, life: Callable[[Tell], None]) -> None:
        """Fork. `life` runs in the child; what it raises ends it."""
        self._read_fd, write_fd = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(self._read_fd)
                life(lambda line: _write(write_fd, line))
                code = 0
            except BaseException:
                code = 1
            finally:
                os._exit(code)
        os.close(write_fd)
        self._rest = b""

    def lines(self, count: int) -> list[str]:
        """Wait for so many lines; fewer when the child ends before."""
        found: list[str] = []
        while len(found) < count:
            chunk = os.read(self._read_fd, 65536)
            if not chunk:
                break
            whole, newline, self._rest = (self._rest + chunk).rpartition(b"\n")
            found += (whole + newline).decode().splitlines()
        return found

    def kill(self) -> list[str]:
        """End it, now; returns the lines that it had still told."""
        os.kill(self.pid, signal.SIGKILL)
        return self.wait()[1]

    def wait(self) -> tuple[int, list[str]]:
        """Wait for its end; returns how it ended (`waitstatus`) and the lines that are left."""
        left = self.lines(1 << 30)
        _, status = os.waitpid(self.pid, 0)
        os.close(self._read_fd)
        return os.waitstatus_to_exitcode(status), left


def storyteller(
    folder: Path,
    sizes: dict[str, int],
    seed: int,
    *,
    steps: int = STEPS_MAX,
    one_at_a_time: bool = False,
    prepare: Callable[[], None] = lambda: None,
    at_end: Callable[[Tell], None] = lambda tell: None,
) -> Child:
    """A child that tells a story of this seed; `prepare` runs in it before, `at_end` behind."""

    def life(tell: Tell) -> None:
        prepare()
        story = Story(folder, sizes, random.Random(seed), tell, one_at_a_time=one_at_a_time)
        story.live(steps)
        at_end(tell)

    return Child(life)


def _write(fd: int, line: str) -> None:
    raw = f"{line}\n".encode()
    written = os.write(fd, raw)  # short, so that a pipe takes it whole
    assert written == len(raw)
