"""RocketMQ's own clients while the members of a group of brokers are replaced, one by one."""

import itertools
from pathlib import Path

import pytest

from dledger_java.rocketmq import PushConsumer, Scenario, of_kind, play
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

pytestmark = [pytest.mark.interop, pytest.mark.sampled(1, by="rocketmq")]

MESSAGES = 4000
GAP_S = 12.0
"""A client of 4.9 that waits for the answer of a member that is gone does so for 30 s."""


def test_default_clients_go_on_while_each_member_is_stopped_and_started(
    rocketmq: str, tmp_path: Path
) -> None:
    """No send fails, and no delivery waits for a time-out."""
    (tmp_path / "c").mkdir()
    (tmp_path / "p").mkdir()
    with BrokerGroup(tmp_path, shares_port=True) as group:
        group.master()
        address = group.name_servers
        play(tmp_path, rocketmq, "send", address, topic="t", count=10)
        with (
            Scenario(
                tmp_path / "c", rocketmq, "push", address, topic="t", group="g", poll=30_000
            ) as consuming,
            Scenario(
                tmp_path / "p", rocketmq, "send", address, topic="t", first=10, count=MESSAGES,
                pause=5, poll=30_000, timeout=10_000,
            ) as producer,
        ):  # fmt: skip
            consumer = PushConsumer(consuming)
            wait_for(lambda: len(consumer.received) > 50, "it consumes", timeout_s=120)
            for member in group.peers:
                group.stop(member)
                group.start(member)
                group.wait_until_up(member)
                group.master()
            events = producer.rest()
            acknowledged = {event["key"] for event in of_kind(events, "sent")}
            wait_for(lambda: acknowledged <= set(consumer.keys), "all of them", timeout_s=90)
            times_s = consumer.times_s

    assert of_kind(events, "failed") == []
    assert len(acknowledged) == MESSAGES
    assert max(b - a for a, b in itertools.pairwise(times_s)) < GAP_S
