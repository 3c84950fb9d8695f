"""RocketMQ's own client as a process that plays one scenario and reports what happened."""

import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dledger_java.program import JavaProgram

Event = dict[str, Any]
PATIENCE_MS = 30_000
"""How long a send may take on a busy machine; the client's own default is 3 s."""


class Scenario(JavaProgram):
    """One scenario of RocketMQ's client."""

    def __init__(
        self, folder: Path, class_path: str, kind: str, name_servers: str, **options: object
    ) -> None:
        """`kind` and `options` are those of `RocketmqScenario.java`."""
        arguments = [kind, name_servers, *(f"{name}={value}" for name, value in options.items())]
        log = folder / f"scenario-{kind}.log"
        super().__init__(class_path, "RocketmqScenario", arguments, log=log)

    def next_event(self) -> Event:
        """Wait for the next event and return it."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the client ended: {self.log_end()}"
        event: Event = json.loads(line)
        return event

    def events(self) -> Iterator[Event]:
        """Yield the events as they come, until the program ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield json.loads(line)

    def end_input(self) -> None:
        """End the program's input, which ends a push consumer."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.stdin = None  # `communicate` would flush it

    def rest(self, timeout_s: float = 120) -> list[Event]:
        """Wait for the end of the scenario; return the events that were not read yet."""
        try:
            output, _ = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the client did not end: {self.log_end()}") from None
        events: list[Event] = [json.loads(line) for line in output.splitlines()]
        assert events, self.log_end()
        assert events[-1]["event"] == "end", events[-1]
        return events[:-1]


class PushConsumer:
    """A push consumer, whose events are read as they come."""

    def __init__(self, scenario: Scenario) -> None:
        self.events: list[Event] = []
        self.times_s: list[float] = []
        """When the messages arrived, on a monotonic clock."""
        self._scenario = scenario
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def received(self) -> list[Event]:
        """The messages that the consumer has received."""
        return of_kind(list(self.events), "received")

    @property
    def keys(self) -> Counter[str]:
        """How often the consumer has received each message."""
        return Counter(event["key"] for event in self.received)

    def stop(self) -> None:
        """Let the consumer leave its group and end."""
        self._scenario.end_input()
        self._reader.join(60)
        assert self.events[-1]["event"] == "end", self.events[-1]

    def _read(self) -> None:
        for event in self._scenario.events():
            self.events.append(event)
            if event["event"] == "received":
                self.times_s.append(time.monotonic())


def play(
    folder: Path, class_path: str, kind: str, name_servers: str, **options: object
) -> list[Event]:
    """Play a scenario to its end, with patience for each send; return its events."""
    options = {"timeout": PATIENCE_MS, **options}
    with Scenario(folder, class_path, kind, name_servers, **options) as scenario:
        return scenario.rest()


def of_kind(events: list[Event], kind: str) -> list[Event]:
    """Return the events of one kind."""
    return [event for event in events if event["event"] == kind]
