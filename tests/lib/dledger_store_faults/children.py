"""Child processes that report a story through a pipe until they are killed."""

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
        """Fork. `life` runs in the child; an exception ends the child with exit code 1."""
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
        """Wait for `count` lines; return fewer if the child ends before."""
        found: list[str] = []
        while len(found) < count:
            chunk = os.read(self._read_fd, 65536)
            if not chunk:
                break
            whole, newline, self._rest = (self._rest + chunk).rpartition(b"\n")
            found += (whole + newline).decode().splitlines()
        return found

    def kill(self) -> list[str]:
        """Kill the child; return the remaining lines."""
        os.kill(self.pid, signal.SIGKILL)
        return self.wait()[1]

    def wait(self) -> tuple[int, list[str]]:
        """Wait until the child ends; return its exit code and the remaining lines."""
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
    """Start a child that runs the story of a seed; it calls `prepare` before, `at_end` after."""

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
