"""A steady stream of appends from a pod in the cluster, and the record of what became of each."""

import itertools
import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from dledger_e2e.group import Group
from dledger_e2e.waiting import wait_for

UNTOLD_MAX = 2_000
"""Appends given to the command line whose outcome it has not told: none pile up in a pipe."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """One append that the group has acknowledged."""

    number: int
    index: int
    at_s: float


class Load:
    """Feeds `dledger append` with numbered bodies until the block ends."""

    def __init__(
        self,
        group: Group,
        *,
        in_flight: int = 64,
        per_second: int = 2_000,
        body_bytes: int = 200,
        deadline_s: float = 30,
    ) -> None:
        self._group = group
        self._body_bytes = body_bytes
        self._in_flight = in_flight
        self._per_second = per_second
        self._deadline_s = deadline_s
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._threads: list[threading.Thread] = []
        self.acknowledged: list[Acknowledgement] = []
        self._given = 0
        self._told = 0
        self.unknown = 0
        self.refused = 0

    def body(self, number: int) -> str:
        """The body of the append with this number."""
        return f"record {number} ".ljust(self._body_bytes, ".")

    def __enter__(self) -> Self:
        """Start appending; returns once the first append is acknowledged."""
        command = self._group.client_command(
            "append",
            "-",
            f"--in-flight={self._in_flight}",
            f"--deadline={self._deadline_s:g}",
            "--output=json",
            "--no-progress",
        )
        self._process = self._group.deployment.kubernetes.start(
            *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for work in (self._write, self._read):
            self._threads.append(threading.Thread(target=work, daemon=True))
            self._threads[-1].start()
        self.wait_for_more(1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop feeding, and wait until the outcome of everything is known."""
        assert self._process is not None
        if error is not None:
            print(
                f"the load: {self._given} appends given, {len(self.acknowledged)} acknowledged, "
                f"{self.unknown} unknown, {self.refused} refused; kubectl's exit code is "
                f"{self._process.poll()}",
                file=sys.stderr,
            )
        self._stopping.set()
        try:
            self._process.wait(timeout=60)
        finally:
            self._process.kill()
            self._process.wait()
            for thread in self._threads:
                thread.join(timeout=10)
            assert self._process.stdout is not None
            self._process.stdout.close()

    def wait_for_more(self, count: int, timeout_s: float = 60.0) -> None:
        """Wait until so many more appends are acknowledged."""
        goal = len(self.acknowledged) + count
        wait_for(
            lambda: len(self.acknowledged) >= goal, f"{count} more acknowledgements", timeout_s
        )

    def longest_pause_s(self, since: int) -> float:
        """The longest pause between acknowledgements, from the one with this number of them on."""
        times = [each.at_s for each in self.acknowledged[since:]]
        return max(later - sooner for sooner, later in itertools.pairwise(times))

    def _write(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        number = 0
        begin_s = time.monotonic()
        with self._process.stdin as stream:
            while not self._stopping.is_set():
                due = int((time.monotonic() - begin_s) * self._per_second)
                due = min(due, self._told + UNTOLD_MAX)
                lines = [f"{self.body(each)}\n" for each in range(number, due)]
                number = max(number, due)
                stream.write("".join(lines).encode())
                stream.flush()
                self._given = number
                self._stopping.wait(0.005)

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            outcome = json.loads(line)
            self._told += "outcome" in outcome
            match outcome.get("outcome"):
                case "acknowledged":
                    now_s = time.monotonic()
                    acknowledgement = Acknowledgement(outcome["number"], outcome["index"], now_s)
                    self.acknowledged.append(acknowledgement)
                case "unknown":
                    self.unknown += 1
                case "refused":
                    self.refused += 1


def assert_nothing_was_lost(group: Group, load: Load) -> None:
    """Every acknowledged append is read back with its bytes at its index."""
    indexes = [each.index for each in load.acknowledged]
    held = group.read_back(min(indexes), max(indexes))
    lost_or_moved = [
        each for each in load.acknowledged if held.get(each.index) != load.body(each.number)
    ]

    assert not lost_or_moved
    assert len(set(indexes)) == len(indexes), "an index was given to two appends"
