"""A stock producer and a stock push consumer of one version, and the times of their events.

Both are RocketMQ's own clients with default settings (`tests/interop/java_rocketmq`). They know one
address, and poll routes every 30 s.
"""

import itertools
import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from tools import java_rocketmq
from tools.groups.java_process import start_java

MAIN: Final = "RocketmqScenario"
SENDS: Final = 10_000_000
"""More than any run sends: the producer is killed at the end."""
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
        self, folder: Path, version: str, address: str, pause_ms: int, poll_ms: int = POLL_MS
    ) -> None:
        """Start both clients.

        The producer waits `pause_ms` after each send, and both ask for the route every `poll_ms`.
        """
        self.version = version
        self.sends: list[Sent] = []
        self.failures: Counter[str] = Counter()
        """How often each error message of a failed send occurred."""
        self.deliveries: Counter[int] = Counter()
        """How often each message was delivered, by its number."""
        self.first_delivered_s: dict[int, float] = {}
        self.places: dict[tuple[int, int], set[int]] = {}
        """The messages that were acknowledged or delivered at each queue and offset."""
        self._missing: set[int] = set()
        """The messages that were acknowledged and not delivered yet."""
        self._lock = threading.Lock()
        self._pause_s = pause_ms / 1000
        topic = f"failover-{version.replace('.', '-')}"
        class_path = java_rocketmq.find_client(version)
        common = [f"topic={topic}", f"poll={poll_ms}"]
        self._producer = _start(
            folder / f"{version}-send", class_path,
            ["send", address, *common, f"count={SENDS}", f"pause={pause_ms}"],
        )  # fmt: skip
        self._consumer = _start(
            folder / f"{version}-push", class_path,
            ["push", address, *common, f"group=of-{topic}"],
        )  # fmt: skip
        self._readers = [
            threading.Thread(target=self._read_sends, daemon=True),
            threading.Thread(target=self._read_deliveries, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill both clients."""
        self.stop_sending()
        self._consumer.kill()
        self._consumer.wait()
        for reader in self._readers:
            reader.join()

    def stop_sending(self) -> None:
        """Kill the producer."""
        self._producer.kill()
        self._producer.wait()

    def first_sent_after(self, time_s: float) -> Sent | None:
        """Return the first send that was begun after a time and has succeeded."""
        later = itertools.takewhile(lambda sent: sent.ended_s > time_s, reversed(self.sends))
        succeeded = [sent for sent in later if sent.place is not None and sent.begun_s > time_s]
        return succeeded[-1] if succeeded else None

    def first_delivery_after(self, number: int) -> float | None:
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

    def undelivered_count(self) -> int:
        """Return how many messages were acknowledged, and not delivered yet."""
        return len(self._missing)

    def offsets_given_twice(self) -> int:
        """Return how many queue offsets belong to more than one message."""
        return sum(len(numbers) > 1 for numbers in self.places.values())

    def _read_sends(self) -> None:
        ended_s = time.monotonic()
        for event, at_s in _events(self._producer):
            if event["event"] not in ("sent", "failed"):
                continue
            number = int(str(event["key"])[1:])
            place = None
            if event["event"] == "failed":
                self.failures[str(event["text"])] += 1
            else:
                place = int(str(event["queue"])), int(str(event["offset"]))
                with self._lock:
                    self.places.setdefault(place, set()).add(number)
                    if number not in self.first_delivered_s:
                        self._missing.add(number)
            self.sends.append(Sent(number, ended_s + self._pause_s, at_s, place))
            ended_s = at_s

    def _read_deliveries(self) -> None:
        for event, at_s in _events(self._consumer):
            if event["event"] == "received":
                number = int(str(event["key"])[1:])
                place = int(str(event["queue"])), int(str(event["offset"]))
                with self._lock:
                    self.deliveries[number] += 1
                    self.first_delivered_s.setdefault(number, at_s)
                    self.places.setdefault(place, set()).add(number)
                    self._missing.discard(number)


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
