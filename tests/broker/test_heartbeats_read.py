"""How heartbeats are read: none takes long, and an equal one next to no time."""

import time
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from dledger_broker.door.connections.connection import BrokerConnection
from dledger_broker.door.consumer_groups.group_clients import GroupClients
from dledger_broker.door.consumer_groups.heartbeats import Heartbeats
from dledger_broker.door.consumer_groups.read_heartbeats import LastHeartbeats, client_of
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.messages.tag_filter import TAGS_MAX
from dledger_broker.state.broker_state import BrokerState
from dledger_broker_client.client import consumer
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.consumer_groups import Heartbeat


class Connection:
    """A connection."""


def connection() -> BrokerConnection:
    return cast("BrokerConnection", Connection())


def heartbeat(*groups: str, topics: int = 1) -> bytes:
    names = [f"topic-{number:06d}" for number in range(topics)]
    consumers = [consumer(group, *names) for group in groups]
    return Heartbeat(client_id="c1", consumer_data_set=consumers).to_json()


def as_the_cpp_client_writes(body: bytes) -> bytes:
    plain = msgspec.json.decode(body)
    for each in plain["consumerDataSet"]:
        each.update(consumeType=1, messageModel=1, consumeFromWhere=0)
        for subscription in each["subscriptionDataSet"]:
            subscription["subVersion"] = str(subscription["subVersion"])
    return msgspec.json.encode(plain)


def least_ms(work: Callable[[], object]) -> float:
    """Return the least processor time of some runs: other work on the machine adds to it."""
    taken_s = []
    for _ in range(7):
        begun_s = time.thread_time()
        work()
        taken_s.append(time.thread_time() - begun_s)
    return min(taken_s) * 1000


@pytest.mark.parametrize("written", [bytes, as_the_cpp_client_writes])
def test_a_heartbeat_of_a_thousand_subscriptions_is_read_in_milliseconds(
    written: Callable[[bytes], bytes],
) -> None:
    body = written(heartbeat("g", topics=1000))

    assert least_ms(lambda: client_of(body)) < 20


def test_an_equal_heartbeat_of_a_connection_is_not_read_again() -> None:
    last, mine, body = LastHeartbeats(), connection(), heartbeat("g", topics=1000)
    said = last.read(mine, body)
    last.keep(mine, said)

    assert last.read(mine, body) is said
    assert least_ms(lambda: last.read(mine, body)) < 2


def test_a_heartbeat_that_differs_or_is_of_another_connection_is_read() -> None:
    last, mine = LastHeartbeats(), connection()
    last.keep(mine, last.read(mine, heartbeat("g")))

    assert list(last.read(mine, heartbeat("g", "h")).client.consumers) == ["g", "h"]
    assert list(last.read(connection(), heartbeat("h")).client.consumers) == ["h"]


def test_what_was_refused_of_a_heartbeat_is_refused_again() -> None:
    last, mine, body = LastHeartbeats(), connection(), heartbeat("g", "bad group")
    last.keep(mine, last.read(mine, body))

    again = last.read(mine, body)

    assert isinstance(again.refusal, RefusedError)
    assert list(again.client.consumers) == ["g"]


@pytest.mark.parametrize("key", ["sub_string", "tags_set", "code_set"])
def test_a_subscription_of_too_many_tags_costs_its_client_nothing_else(key: str) -> None:
    """The whole heartbeat was refused. No such list may come into the log: the release before
    could not apply it.
    """
    for count, groups in ((TAGS_MAX, ["g", "h"]), (TAGS_MAX + 1, ["h"])):
        tags = [f"t{number}" for number in range(count)]
        lists = {
            "sub_string": "||".join(tags), "tags_set": tags, "code_set": list(range(count)),
        }  # fmt: skip
        joining = consumer("g", "t")
        [subscription] = joining.subscription_data_set
        joining.subscription_data_set[0] = msgspec.structs.replace(
            subscription, **{key: lists[key]}
        )
        body = Heartbeat(client_id="c", consumer_data_set=[joining, consumer("h", "t")]).to_json()

        client, refusal = client_of(body)

        assert list(client.consumers) == groups
        assert (refusal is None) == (count == TAGS_MAX)
        if refusal is not None:
            assert refusal.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
            assert "1025" in refusal.remark


def test_what_is_not_kept_is_read_again() -> None:
    last, mine, body = LastHeartbeats(), connection(), heartbeat("g")

    assert last.read(mine, body) is not last.read(mine, body)


@pytest.mark.parametrize("group", ["bad group", "g" * 130])
def test_a_refusal_that_is_kept_keeps_nothing_else(group: str) -> None:
    """It kept its frames, with the body of the heartbeat and its connection, forever."""
    refusal = LastHeartbeats().read(connection(), heartbeat(group)).refusal

    assert refusal is not None
    assert refusal.__traceback__ is None


class Member:
    """The part of a member that takes the heartbeats of its clients."""

    def __init__(self) -> None:
        owner: Any = SimpleNamespace(state=BrokerState())
        self.clients = GroupClients(owner)
        leases: Any = SimpleNamespace(is_leaving=lambda _: False)
        self.gone: list[tuple[str, str]] = []
        presence: Any = SimpleNamespace(seen=lambda _: None, gone=self.gone.append)
        to_leader: Any = SimpleNamespace(take=lambda _: None)
        self.heartbeats = Heartbeats(owner, self.clients, leases, presence, to_leader)

    def beat(self, connection: BrokerConnection, body: bytes) -> None:
        self.heartbeats.beat(call(connection, body))


def call(connection: BrokerConnection, body: bytes) -> Any:
    return SimpleNamespace(
        connection=connection, command=SimpleNamespace(body=body), arrived_s=0.0,
        fields=lambda kind: kind(client_id="c1", consumer_group="g"),
    )  # fmt: skip


async def test_a_connection_that_is_gone_is_forgotten_with_its_heartbeat() -> None:
    member, mine = Member(), connection()
    member.beat(mine, heartbeat("g", "bad group"))
    gone = weakref.ref(mine)

    member.heartbeats.forget(mine)
    del mine

    assert member.gone == [("g", "c1")]
    assert gone() is None


async def test_the_heartbeat_of_a_client_that_has_left_a_group_is_not_kept() -> None:
    """It no longer counts among the heartbeats that a member may keep."""
    member, mine, body = Member(), connection(), heartbeat("g")
    member.beat(mine, body)
    kept = member.heartbeats._last.read(mine, body)

    member.heartbeats.leave(call(mine, b""))

    assert member.heartbeats._last.read(mine, body) is not kept
