"""Pulls that read much and find nothing do not hold delayed messages up."""

import statistics
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dledger_broker_client.client import BrokerClient, messages, number, pull_ext, send_ext
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group

CLIENTS = 12
PULLS_OF_CLIENT = 12
STORED = 1_000
"""More than one pull looks at."""
DELAY_MS = 1_000
ROUNDS = 3
"""Behind pulls, each message would be late; a busy machine makes one of them late."""


class Puller(threading.Thread):
    """Pulls messages of a tag that none has, so that each pull reads as many as it may."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._address = address
        self.took_s: list[float] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        with BrokerClient(self._address) as client:
            waiting: deque[tuple[int, float]] = deque()
            while not self.stopped.is_set():
                while len(waiting) < PULLS_OF_CLIENT:
                    ext = pull_ext("full", 0, subscription="rare")
                    waiting.append((client.begin(RequestCode.PULL_MESSAGE, ext), time.monotonic()))
                opaque, begun_s = waiting.popleft()
                assert client.answer(opaque).code == ResponseCode.PULL_RETRY_IMMEDIATELY
                self.took_s.append(time.monotonic() - begun_s)


@contextmanager
def pulling(address: str) -> Iterator[list[Puller]]:
    pullers = [Puller(address) for _ in range(CLIENTS)]
    for puller in pullers:
        puller.start()
    try:
        yield pullers
    finally:
        for puller in pullers:
            puller.stopped.set()
        for puller in pullers:
            puller.join(60)


def test_a_delayed_message_does_not_queue_behind_pulls(
    broker: BrokerGroup, client: BrokerClient
) -> None:
    address = broker.broker_addresses["n0"]
    ext = send_ext("full")
    for opaque in [client.begin(RequestCode.SEND_MESSAGE_V2, ext, b"x") for _ in range(STORED)]:
        assert client.answer(opaque).code == ResponseCode.SUCCESS
    client.wait_until_visible("full", STORED)

    late_s, end = [], {"topic": "late", "queueId": "0"}
    with pulling(address) as pullers:
        wait_for(lambda: all(puller.took_s for puller in pullers), "every client was answered")
        for offset in range(ROUNDS):
            sent_ms = time.time() * 1000
            assert client.send("late", i="DELAY\x011\x02").code == ResponseCode.SUCCESS
            wait_for(
                lambda wanted=offset + 1: (
                    number(client.ask(RequestCode.GET_MAX_OFFSET, end), "offset") == wanted
                ),
                "the message is delivered",
            )
            [delivered] = messages(client.pull("late", offset))
            late_s.append((delivered.store_timestamp - sent_ms - DELAY_MS) / 1000)

    pull_s = statistics.median(took_s for puller in pullers for took_s in puller.took_s)
    print(f"late: {late_s} s; a pull took {pull_s:.3f} s")
    assert min(late_s) < pull_s / 2
