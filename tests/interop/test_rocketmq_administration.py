"""RocketMQ's own administration client with a group of brokers."""

from pathlib import Path

import pytest

from dledger_formats.log.checksum import crc32
from dledger_java.rocketmq import of_kind, play
from tools.groups.broker_group import BrokerGroup

pytestmark = [pytest.mark.interop, pytest.mark.sampled(1, by="rocketmq")]


def test_the_administration_client_makes_changes_shows_and_deletes_topics_and_groups(
    rocketmq: str, brokers: BrokerGroup, tmp_path: Path
) -> None:
    name = f"admin-{crc32(rocketmq.encode())}"
    sent = play(tmp_path, rocketmq, "send", brokers.name_servers, topic="shown", count=1)
    [message] = of_kind(sent, "sent")

    events = play(
        tmp_path, rocketmq, "admin", brokers.name_servers,
        topic=name, group=f"group-of-{name}", broker="g",
        message=message["offsetId"], messageTopic="shown",
    )  # fmt: skip

    made, changed = ({"inTable": n, "queues": n, "inRoute": n} for n in (3, 5))
    assert of_kind(events, "topic") == [
        {"event": "topic", "perm": 6, "listed": "true"} | made,
        {"event": "topic", "perm": 4, "listed": "true"} | changed,
    ]
    assert of_kind(events, "group") == [{"event": "group", "times": 3, "inTable": 3}]
    assert of_kind(events, "runtime") == [{"event": "runtime", "version": "V5_3_3"}]
    assert of_kind(events, "message") == [{"event": "message", "key": "k0"}]
    assert of_kind(events, "deleted") == [{"event": "deleted", "topic": "false", "group": "false"}]
