"""Pulls that wait for some tags, while messages of other tags arrive."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from dledger_broker.door.consumer_groups.group_clients import Client, GroupClients
from dledger_broker.door.reading.pull_requests import PullRequests
from dledger_broker_client.client import BrokerClient, bodies, consumer, number, pull_ext
from dledger_formats.protocol.frames import RemotingCommand
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from tools.groups.broker_group import BrokerGroup

OTHERS = 5
MESSAGES = {"maxMsgNums": "32"}, {"maxMsgNums": "1000"}
"""Pulls that the event loop serves, and pulls that threads serve."""


@pytest.fixture
def sender(broker: BrokerGroup) -> Iterator[BrokerClient]:
    """A connection that pulls nothing."""
    with BrokerClient(broker.broker_addresses["n0"]) as connected:
        yield connected


def send(client: BrokerClient, topic: str, tag: str, count: int = 1) -> None:
    """Send messages one after the other; each is visible before the next one."""
    for _ in range(count):
        offset = number(client.send(topic, tag.encode(), i=f"TAGS\x01{tag}\x02"), "queueOffset")
        client.wait_until_visible(topic, offset + 1)


def begin(client: BrokerClient, topic: str, offset: int, wait_ms: int, **changed: str) -> int:
    held = {"sysFlag": "6", "suspendTimeoutMillis": str(wait_ms), "subscription": "red"}
    opaque = client.begin(RequestCode.PULL_MESSAGE, pull_ext(topic, offset, **held) | changed)
    client.ask(
        RequestCode.GET_BROKER_CLUSTER_INFO
    )  # whose answer comes once the pull was looked at
    return opaque


@pytest.mark.parametrize("messages", MESSAGES, ids=["loop", "thread"])
def test_a_held_pull_is_not_answered_for_messages_of_other_tags(
    client: BrokerClient, sender: BrokerClient, messages: dict[str, str]
) -> None:
    """Each was answered, and its client pulled again: for every message of the queue."""
    topic = f"waits-{messages['maxMsgNums']}"
    send(sender, topic, "red")
    opaque = begin(client, topic, 1, 20_000, **messages)
    send(sender, topic, "blue", OTHERS)
    send(sender, topic, "red")

    answer = client.answer(opaque)

    assert bodies(answer) == [b"red"]
    assert number(answer, "nextBeginOffset") == OTHERS + 2


@pytest.mark.parametrize("messages", MESSAGES, ids=["loop", "thread"])
def test_a_held_pull_that_found_no_message_in_its_time_is_told_what_it_need_not_look_at(
    client: BrokerClient, sender: BrokerClient, messages: dict[str, str]
) -> None:
    topic = f"waited-{messages['maxMsgNums']}"
    send(sender, topic, "red")
    opaque = begin(client, topic, 1, 3000, **messages)
    send(sender, topic, "blue", OTHERS)

    answer = client.answer(opaque)

    assert skipped(answer) == (ResponseCode.PULL_RETRY_IMMEDIATELY, OTHERS + 1)


def test_a_pull_that_was_not_held_is_told_at_once_what_it_need_not_look_at(
    client: BrokerClient, sender: BrokerClient
) -> None:
    send(sender, "at-once", "blue", OTHERS)

    answer = client.answer(begin(client, "at-once", 0, 20_000))

    assert skipped(answer) == (ResponseCode.PULL_RETRY_IMMEDIATELY, OTHERS)


BY_HEARTBEAT = {"sysFlag": "2"}
"""A pull that may be held, and means the subscription of the heartbeat."""


@pytest.mark.parametrize("messages", MESSAGES, ids=["loop", "thread"])
def test_a_consumer_that_subscribes_to_more_tags_gets_their_messages(
    client: BrokerClient, sender: BrokerClient, messages: dict[str, str]
) -> None:
    """Its held pull went on past them, with the tags that it had when it came."""
    topic = f"more-{messages['maxMsgNums']}"
    send(sender, topic, "red")
    client.beat("c1", consumer("consumers", topic, tags="red"))
    opaque = begin(client, topic, 1, 20_000, **messages, **BY_HEARTBEAT)
    client.beat("c1", consumer("consumers", topic, tags="red || blue", version=2))
    send(sender, topic, "blue", OTHERS)
    send(sender, topic, "red")

    answer = client.answer(opaque)
    again = client.answer(begin(client, topic, 1, 0, **messages, **BY_HEARTBEAT))

    assert skipped(answer) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 1)
    assert bodies(again) == [b"blue"] * OTHERS + [b"red"]


def test_a_consumer_that_subscribes_to_more_tags_goes_back_to_what_its_pull_has_skipped(
    client: BrokerClient, sender: BrokerClient
) -> None:
    send(sender, "back", "red")
    client.beat("c1", consumer("consumers", "back", tags="red"))
    opaque = begin(client, "back", 1, 3000, **BY_HEARTBEAT)
    send(sender, "back", "blue", OTHERS)
    client.beat("c1", consumer("consumers", "back", tags="red || blue", version=2))

    answer = client.answer(opaque)

    assert skipped(answer) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 1)


def test_a_heartbeat_with_the_same_tags_does_not_end_a_held_pull(
    client: BrokerClient, sender: BrokerClient
) -> None:
    send(sender, "same", "red")
    client.beat("c1", consumer("consumers", "same", tags="red"))
    opaque = begin(client, "same", 1, 20_000, **BY_HEARTBEAT)
    client.beat("c1", consumer("consumers", "same", tags="red", version=2))
    send(sender, "same", "blue", OTHERS)
    send(sender, "same", "red")

    assert bodies(client.answer(opaque)) == [b"red"]


def skipped(answer: RemotingCommand) -> tuple[int, int]:
    return answer.code, number(answer, "nextBeginOffset")


class LargeGroup:
    """A group whose clients must not be looked through, and a held pull of one of them."""

    def __init__(self) -> None:
        state = SimpleNamespace(tables=None, consumers=self.look_through)
        owner: Any = SimpleNamespace(state=state)
        self.clients = GroupClients(owner)
        self.connection: Any = object()
        self._requests = PullRequests(owner, self.clients)

    def look_through(self, group: str) -> list[object]:
        pytest.fail(f"all clients of {group} are looked through")

    def beat(self, tags: str) -> None:
        """Let the client of the pull send a heartbeat."""
        said = {"g": consumer("g", "t", tags=tags, version=2)}
        self.clients.seen(self.connection, Client("c1", said, 1))

    @property
    def is_outdated(self) -> bool:
        """Whether the pull, which wants red messages, is outdated."""
        fields = SimpleNamespace(sys_flag=2, consumer_group="g", topic="t")
        pull: Any = SimpleNamespace(
            codes={1}, fields=fields, subscription=SimpleNamespace(sub_string="red"),
            call=SimpleNamespace(connection=self.connection),
        )  # fmt: skip
        return self._requests.is_outdated(pull)


def test_a_pull_that_ends_is_compared_with_its_own_client_alone() -> None:
    """All clients of its group were looked through while it had sent no heartbeat, for each pull:
    100 in one turn of the event loop took 165 ms in a group of 5,000.
    """
    group = LargeGroup()

    assert not group.is_outdated
    group.beat("red")
    assert not group.is_outdated
    group.beat("red || blue")
    assert group.is_outdated
