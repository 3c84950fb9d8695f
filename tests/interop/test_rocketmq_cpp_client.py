"""RocketMQ's C++ client, which the Python package `rocketmq` brings, with a group of brokers."""

import importlib.util
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

import dledger_cpp
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(
        importlib.util.find_spec("rocketmq") is None,
        reason="the package rocketmq is not installed; there is one for Linux on x86-64",
    ),
]
PROGRAM = Path(dledger_cpp.__file__).parent / "program.py"
TOPIC = "orders"
RECEIVED_S = 60.0


class CppClient:
    """One part of the program, as a process."""

    def __init__(self, home: Path, *arguments: object) -> None:
        home.mkdir(exist_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *map(str, arguments)],
            env=os.environ | {"HOME": str(home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in [*self.events] if event["event"] == kind]

    def end(self) -> None:
        """Wait until the program has done its part."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"{"):  # the library prints, too
                self.events.append(json.loads(line))


def send(group: BrokerGroup, home: Path, first: int, count: int) -> CppClient:
    return CppClient(home, "send", group.group_address, TOPIC, first, count)


def send_until_one_is_received(group: BrokerGroup, home: Path, consumer: CppClient) -> int:
    """A new consumer looks for its queues some time after it has started, and every 10 s. Return
    the number of messages that were sent.
    """
    until_s = time.monotonic() + RECEIVED_S
    for number in itertools.count():
        with send(group, home, number, 1) as producer:
            producer.end()
        assert time.monotonic() < until_s, "the consumer receives nothing"
        if consumer.of_kind("received"):
            return number + 1
    raise AssertionError


def test_a_cpp_client_sends_and_consumes_through_the_kill_of_the_leader(tmp_path: Path) -> None:
    with BrokerGroup(tmp_path, shares_port=True) as group:
        leader = group.master()
        with send(group, tmp_path / "first", -1, 1) as producer:
            producer.end()
        address = group.group_address
        with CppClient(tmp_path / "consumer", "push", address, TOPIC, "billing") as consumer:
            wait_for(lambda: consumer.of_kind("started"), "the consumer has started")
            begun = send_until_one_is_received(group, tmp_path / "first", consumer)
            with send(group, tmp_path / "producer", begun, 300) as producer:
                wait_for(lambda: len(producer.of_kind("sent")) >= 100, "100 are sent")
                group.kill(leader)
                producer.end()
            sent = {event["key"] for event in producer.of_kind("sent")}
            failed = producer.of_kind("failed")
            wait_for(
                lambda: sent <= {event["key"] for event in consumer.of_kind("received")},
                "all acknowledged messages are received",
            )
            received = consumer.of_kind("received")

    assert len(sent) + len(failed) == 300
    assert len(sent) > 290, failed
    assert {event["status"] for event in producer.of_kind("sent")} == {0}
    assert all(event["body"] == f"body {event['key'][1:]}" for event in received)
    places = Counter((event["queue"], event["offset"]) for event in received)
    assert max(places.values()) <= 2, "at most what was consumed and not yet committed"
