"""A steady stream of appends from a pod in the cluster, with the outcome of each."""

import itertools
import json
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from dledger_e2e.group import Group
from dledger_e2e.waiting import wait_for

P99_OF_AT_LEAST = 50
"""Number of rounds below which a 99th percentile would be the maximum by another name."""
MEDIAN_OF_AT_LEAST = 3
MEDIAN_PAUSE_S_MAX = 1.0
"""The bound of most pauses in a planned change. One pause alone may be longer: the machine may be
busy with other tests at that moment.
"""
READ_BACK_BYTES_MAX = 64 << 20
"""Maximum bytes of bodies that are read back by one command."""
PENDING_MAX = 2_000
"""Maximum number of appends without an outcome, so that none pile up in a pipe."""
TO_THE_END_OF_INPUT = (
    '"$@"; code=$?; echo "dledger append has ended with exit code $code" >&2; '
    "cat > /dev/null; exit $code"
)
"""Runs `dledger append`, says that it has ended, and reads what it leaves of its input: `kubectl
exec` does not return while the input of a command that has ended fills the pipes.
"""


@dataclass(frozen=True, slots=True)
class Acknowledgment:
    """An acknowledged append."""

    number: int
    index: int
    at_s: float
    """Time since the epoch at which the client received it, by its own clock."""


class Load:
    """Runs `dledger append` with numbered bodies until the block ends."""

    def __init__(
        self,
        group: Group,
        *,
        in_flight: int = 64,
        per_second: int = 2_000,
        body_bytes: int = 200,
        deadline_s: float = 30,
        follow: bool = True,
    ) -> None:
        """Prepare a load; without `follow`, the client uses only the master Service."""
        self._group = group
        self.body_bytes = body_bytes
        self._in_flight = in_flight
        self._per_second = per_second
        self._deadline_s = deadline_s
        self._follow = follow
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._threads: list[threading.Thread] = []
        self.acknowledged: list[Acknowledgment] = []
        self._sent = 0
        self._finished = 0
        self.unknown = 0
        self.refused = 0
        self.failures: Counter[str] = Counter()
        """Number of failed appends, by the client's message."""

    def body(self, number: int) -> str:
        """Return the body of the append with this number."""
        return f"record {number} ".ljust(self.body_bytes, ".")

    def __enter__(self) -> Self:
        """Start to append; return once the first append is acknowledged."""
        command = self._group.client_command(
            "append",
            "-",
            f"--in-flight={self._in_flight}",
            f"--deadline={self._deadline_s:g}",
            "--output=json",
            "--no-progress",
            *(() if self._follow else ("--no-follow",)),
        )
        program = command.index("--") + 1
        command[program:program] = ["sh", "-c", TO_THE_END_OF_INPUT, "sh"]
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
        """Stop appending, and wait until every append has an outcome."""
        assert self._process is not None
        if error is not None:
            print(
                f"load: {self._sent} appends sent, {len(self.acknowledged)} acknowledged, "
                f"{self.unknown} unknown, {self.refused} refused; kubectl's exit code: "
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
        """Wait until `count` more appends are acknowledged."""
        goal = len(self.acknowledged) + count
        wait_for(lambda: len(self.acknowledged) >= goal, f"{count} more acknowledgments", timeout_s)

    def longest_pause_s(self, since: int) -> float:
        """Return the longest time between acknowledgments, starting at number `since`."""
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
                due = min(due, self._finished + PENDING_MAX)
                lines = [f"{self.body(each)}\n" for each in range(number, due)]
                number = max(number, due)
                stream.write("".join(lines).encode())
                stream.flush()
                self._sent = number
                self._stopping.wait(0.005)

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            outcome = json.loads(line)
            self._finished += "outcome" in outcome
            match outcome.get("outcome"):
                case "acknowledged":
                    acknowledgment = Acknowledgment(
                        outcome["number"], outcome["index"], outcome["time"]
                    )
                    self.acknowledged.append(acknowledgment)
                case "unknown":
                    self.unknown += 1
                    self.failures[outcome["reason"]] += 1
                case "refused":
                    self.refused += 1
                    self.failures[outcome["reason"]] += 1


def summary(gaps_s: Sequence[float]) -> str:
    """Summarize the pause of each round."""
    ranked = sorted(gaps_s)
    p99 = f"p99 {ranked[len(ranked) * 99 // 100]:.3f} s, " if len(ranked) >= P99_OF_AT_LEAST else ""
    return f"median {statistics.median(ranked):.3f} s, {p99}maximum {ranked[-1]:.3f} s"


def assert_pauses_are_short(gaps_s: Sequence[float], longest_s_max: float) -> None:
    """Check the longest of the pauses, and their median if there are enough of them."""
    assert max(gaps_s) < longest_s_max, gaps_s
    if len(gaps_s) >= MEDIAN_OF_AT_LEAST:
        assert statistics.median(gaps_s) < MEDIAN_PAUSE_S_MAX, gaps_s


def assert_nothing_was_lost(group: Group, load: Load, since: int = 0) -> None:
    """Check that every acknowledged append is read back unchanged at its index.

    The group may have removed the entries before `since` from the front of its log.
    """
    by_index = {each.index: each for each in load.acknowledged}
    assert len(by_index) == len(load.acknowledged), "two appends have the same index"
    by_index = {index: each for index, each in by_index.items() if index >= since}
    assert by_index, "nothing is left to read back"
    window = max(1, READ_BACK_BYTES_MAX // load.body_bytes)
    last = max(by_index)
    for first in range(min(by_index), last + 1, window):
        stored = group.read_back(first, min(first + window - 1, last))
        lost_or_moved = [
            each
            for index in range(first, first + window)
            if (each := by_index.get(index)) and stored.get(index) != load.body(each.number)
        ]
        assert not lost_or_moved
