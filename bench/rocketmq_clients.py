"""A stock producer and a stock push consumer of one version, and the times of their events.

Both are RocketMQ's own clients with default settings (`tests/interop/java_rocketmq`). They know one
address, and poll routes every 30 s.
"""

import contextlib
import itertools
import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from bench.rocketmq_judge import MessageJudge, Verdict
from dledger_client.sync import BlockingClient
from dledger_formats.log import disk
from tools import java_rocketmq
from tools.groups.java_process import start_java
from tools.groups.waiting import wait_for

MAIN: Final = "RocketmqScenario"
SENDS: Final = 10_000_000
"""More than any run sends: the producer is killed at the end."""
PAUSE_MS: Final = 10
STEADY_SENDS: Final = 100
"""Sends that steady clients complete before each kill."""
GOES_ON_S: Final = 90.0
"""A client that needs longer ends the run: its own time-outs are shorter."""
POLL_MS: Final = 30_000
"""The default interval at which clients poll routes; the scenarios have a shorter one."""


class Sent(NamedTuple):
    """One send."""

    number: int
    begun_s: float
    """When the end of the previous send was read, plus the pause after it."""
    ended_s: float
    place: tuple[int, int] | None
    """Queue and offset; None if the send failed."""


class StockClients:
    """A producer and a consumer of one version, with a topic of their own. A context manager."""

    def __init__(
        self,
        folder: Path,
        version: str,
        address: str,
        pause_ms: int = PAUSE_MS,
        poll_ms: int = POLL_MS,
    ) -> None:
        """Start the producer, and the consumer once the topic exists.

        The producer waits `pause_ms` after each send, and both ask for the route every `poll_ms`.
        """
        self.version = version
        self.sends: list[Sent] = []
        self.failures: Counter[str] = Counter()
        """How often each error message of a failed send occurred."""
        self.first_delivered_s: dict[int, float] = {}
        self._lock = threading.Lock()
        self._pause_s = pause_ms / 1000
        topic = f"failover-{version.replace('.', '-')}"
        self._judge = MessageJudge(topic)
        class_path = java_rocketmq.find_client(version)
        common = [f"topic={topic}", f"poll={poll_ms}"]
        self._producer = _start(
            folder / f"{version}-send", class_path,
            ["send", address, *common, f"count={SENDS}", f"pause={pause_ms}"],
        )  # fmt: skip
        self._readers = [threading.Thread(target=self._read_sends, daemon=True)]
        self._readers[0].start()
        try:
            wait_for(lambda: self.sends, f"the producer {version} sends")
        except AssertionError:
            self._producer.kill()
            raise
        self._consumer = _start(
            folder / f"{version}-push", class_path,
            ["push", address, *common, f"group=of-{topic}"],
        )  # fmt: skip
        self._readers.append(threading.Thread(target=self._read_deliveries, daemon=True))
        self._readers[1].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill both clients."""
        self._stop_sending()
        self._consumer.kill()
        self._consumer.wait()
        for reader in self._readers:
            reader.join()
        for process in (self._producer, self._consumer):
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()

    def stop_sending(self) -> None:
        """Kill the producer, and wait until all acknowledged messages are delivered; the verdict
        says which are not after some time.
        """
        self._stop_sending()
        with contextlib.suppress(AssertionError):
            what = "all acknowledged messages are delivered"
            wait_for(lambda: not self._judge.missing, what, GOES_ON_S)

    def wait_until_steady(self) -> None:
        """Wait until some messages are sent and all are delivered."""
        goal = len(self.sends) + STEADY_SENDS
        what = f"{STEADY_SENDS} messages of {self.version} are sent and delivered"
        wait_for(lambda: len(self.sends) >= goal and not self._judge.missing, what, GOES_ON_S)

    def wait_until_going(self) -> None:
        """Wait until a new message is delivered; earlier ones may be lost."""
        goal = len(self.sends) + STEADY_SENDS
        what = f"a message of {self.version} is delivered after {STEADY_SENDS} more were sent"
        wait_for(lambda: self._first_delivery_after(goal), what, GOES_ON_S)

    def gaps_s(self, killed_s: float) -> tuple[float, float]:
        """Return how long after a kill the producer and the consumer went on.

        The producer goes on with the first SEND_OK of a send that was begun after the kill, and the
        consumer with the first delivery of such a message, or of a later one.
        """
        what = f"{self.version} goes on after a kill"
        sent = wait_for(partial(self._first_sent_after, killed_s), f"a producer {what}", GOES_ON_S)
        delivered_s = wait_for(
            partial(self._first_delivery_after, sent.number), f"a consumer {what}", GOES_ON_S
        )
        return sent.ended_s - killed_s, delivered_s - killed_s

    def _stop_sending(self) -> None:
        self._producer.kill()
        self._producer.wait()
        self._readers[0].join()

    def _first_sent_after(self, time_s: float) -> Sent | None:
        """Return the first send that was begun after a time and has succeeded."""
        later = itertools.takewhile(lambda sent: sent.ended_s > time_s, reversed(self.sends))
        succeeded = [sent for sent in later if sent.place is not None and sent.begun_s > time_s]
        return succeeded[-1] if succeeded else None

    def _first_delivery_after(self, number: int) -> float | None:
        """Return when the first message with this number or a later one was delivered."""
        later = range(number, len(self.sends) + 1)
        return min(
            (self.first_delivered_s[each] for each in later if each in self.first_delivered_s),
            default=None,
        )

    def longest_send_s(self, since_s: float) -> float:
        """Return the duration of the longest send that has ended since a time."""
        ended = itertools.takewhile(lambda sent: sent.ended_s > since_s, reversed(self.sends))
        return max(sent.ended_s - sent.begun_s for sent in ended)

    def longest_pause_of_deliveries_s(self, since_s: float) -> float:
        """Return the longest time without a delivery, from a time to the last delivery."""
        with self._lock:
            times = sorted(at_s for at_s in self.first_delivered_s.values() if at_s > since_s)
        return max(later - earlier for earlier, later in itertools.pairwise([since_s, *times]))

    def verdict(self, log: Iterable[bytes] | None) -> Verdict:
        """Judge the messages; `log` has the bodies of all entries of the log, if it is known."""
        with self._lock:
            if log is not None:
                self._judge.take_log(log)
            return self._judge.verdict()

    def _read_sends(self) -> None:
        ended_s = time.monotonic()
        for event, at_s in _events(self._producer):
            with self._lock:
                self._judge.take(event, at_s)
            if event["event"] not in ("sent", "failed"):
                continue
            number = int(str(event["key"])[1:])
            place = None
            if event["event"] == "failed":
                self.failures[str(event["text"])] += 1
            else:
                place = int(str(event["queue"])), int(str(event["offset"]))
            self.sends.append(Sent(number, ended_s + self._pause_s, at_s, place))
            ended_s = at_s

    def _read_deliveries(self) -> None:
        for event, at_s in _events(self._consumer):
            if event["event"] == "received":
                number = int(str(event["key"])[1:])
                with self._lock:
                    self._judge.take(event, at_s)
                    self.first_delivered_s.setdefault(number, at_s)


def log_bodies(servers: Sequence[str], group: str) -> Iterator[bytes]:
    """Yield the bodies of all entries of a log, without the leaders' own."""
    with BlockingClient(servers, group) as reader:
        for entry in reader.get_range(0):
            if entry.magic == disk.NORMAL:
                yield entry.body


def _start(folder: Path, class_path: str, arguments: list[str]) -> "subprocess.Popen[bytes]":
    folder.mkdir(parents=True)
    with (folder / "log").open("wb") as log:
        return start_java(class_path, MAIN, arguments, home=folder, log=log, piped=True)


def _events(process: "subprocess.Popen[bytes]") -> Iterator[tuple[dict[str, object], float]]:
    """Yield the events of a client, each with the time when it was read."""
    assert process.stdout is not None
    for line in process.stdout:
        at_s = time.monotonic()
        if not line.endswith(b"\n"):
            return  # the client was killed
        yield json.loads(line), at_s
