"""`dledger group local --broker` with RocketMQ's own clients, which know one address only."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_group.local_process import LocalGroupProcess
from dledger_java.rocketmq import Event, PushConsumer, Scenario, of_kind, play
from tools.groups.ports import consecutive_ports
from tools.groups.waiting import wait_for

pytestmark = [pytest.mark.interop, pytest.mark.sampled(1, by="rocketmq")]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[LocalGroupProcess]:
    """Three brokers that a user has started with one command."""
    port = consecutive_ports(4)
    options = ("--broker", f"--broker-port={port}")
    with LocalGroupProcess(tmp_path / "data", 3, 0, *options) as running:
        yield running


def test_default_clients_send_and_consume_through_a_kill_of_the_leader(
    rocketmq: str, group: LocalGroupProcess, tmp_path: Path
) -> None:
    """Their interval of polling routes is 30 s, so they find no other address in time."""
    leader = group.event("leader")["leader"]
    address = group.started["broker"]["namesrvAddr"]
    play(tmp_path, rocketmq, "send", address, topic="t", count=10)
    (tmp_path / "c").mkdir()
    with Scenario(
        tmp_path / "c", rocketmq, "push", address, topic="t", group="g", poll=30_000
    ) as consuming:
        consumer = PushConsumer(consuming)
        wait_for(lambda: len(consumer.received) == 10, "it has consumed", timeout_s=60)
        with Scenario(
            tmp_path, rocketmq, "send", address, topic="t", first=10, count=600, pause=5,
            poll=30_000, timeout=10_000,
        ) as producer:  # fmt: skip
            events: list[Event] = []
            while len(of_kind(events, "sent")) < 100:
                events.append(producer.next_event())
            os.kill(group.started["members"][leader]["pid"], signal.SIGKILL)
            events += producer.rest()
        acknowledged = {event["key"] for event in of_kind(events, "sent")}
        wait_for(lambda: acknowledged <= set(consumer.keys), "all of them", timeout_s=90)

    assert of_kind(events, "failed") == []
    assert len(acknowledged) == 600


def test_a_member_of_a_stopped_group_of_brokers_keeps_its_messages(
    rocketmq_5: str, tmp_path: Path
) -> None:
    port = consecutive_ports(2)
    options = ("--broker", f"--broker-port={port}")
    with LocalGroupProcess(tmp_path / "data", 1, 0, *options) as group:
        address = group.started["broker"]["namesrvAddr"]
        group.event("leader")
        play(tmp_path, rocketmq_5, "send", address, topic="t", count=10)
    with LocalGroupProcess(tmp_path / "data", 1, 0, *options) as group:
        group.event("leader")
        events = play(tmp_path, rocketmq_5, "pull", address, topic="t", group="g", count=10)

    assert len(of_kind(events, "received")) == 10
