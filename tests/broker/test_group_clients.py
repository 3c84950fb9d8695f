"""The connections behind the clients of consumer groups, without sockets."""

import asyncio
import itertools
from collections.abc import Mapping
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_broker.door.connections.connection import BrokerConnection
from dledger_broker.door.consumer_groups import group_clients
from dledger_broker.door.consumer_groups.group_clients import Client, GroupClients
from dledger_broker.leading.log_owner import LogOwner
from dledger_broker.messages.send_checks import RefusedError
from dledger_broker.state.broker_state import BrokerState
from dledger_broker_client.client import consumer
from dledger_formats.protocol.frames import FrameDecoder
from dledger_formats.rocketmq.codes import ResponseCode
from dledger_formats.rocketmq.consumer_groups import Consumer
from dledger_node.slices import PER_TURN


class Owner:
    """The part of the log owner that the table needs."""

    def __init__(self) -> None:
        self.state = BrokerState()


class Connection:
    """A connection that keeps what was sent."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def send(self, data: bytes) -> None:
        for command in FrameDecoder().feed(data):
            assert command.ext_fields is not None
            self.told.append(command.ext_fields["consumerGroup"])


def new_table() -> tuple[GroupClients, BrokerState]:
    owner = Owner()
    return GroupClients(cast("LogOwner", owner)), owner.state


def connection() -> BrokerConnection:
    return cast("BrokerConnection", Connection())


def client(client_id: str, *groups: str, body_bytes: int = 10) -> Client:
    return Client(client_id, {group: consumer(group, "t") for group in groups}, body_bytes)


_clients = st.builds(
    lambda client_id, groups: client(client_id, *sorted(groups)),
    st.sampled_from("abc"),
    st.sets(st.sampled_from(("g1", "g2", "g3"))),
)
_steps = st.lists(st.tuples(st.integers(0, 3), st.none() | _clients), max_size=30)


@given(_steps)
def test_a_membership_is_gone_exactly_when_its_last_connection_is(
    steps: list[tuple[int, Client | None]],
) -> None:
    table, _ = new_table()
    connections = [connection() for _ in range(4)]
    model: dict[int, Client] = {}

    def held(of: Mapping[int, Client]) -> set[tuple[str, str]]:
        return {(group, each.client_id) for each in of.values() for group in each.consumers}

    for number, said in steps:
        before = held(model)
        if said is None:
            gone = table.forget(connections[number])
            model.pop(number, None)
        else:
            gone = table.seen(connections[number], said)
            model[number] = said
        assert sorted(gone) == sorted(before - held(model))
    for number in range(4):
        table.forget(connections[number])
    assert table._by_connection == table._connections == table._holders == {}
    assert table._memberships == table._body_bytes == 0


@pytest.mark.parametrize("bound", ["CLIENTS_MAX", "CLIENTS_BYTES_MAX"])
def test_more_clients_than_the_bound_are_refused_and_the_others_stay(
    monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(group_clients, bound, 20 if bound == "CLIENTS_BYTES_MAX" else 2)
    table, _ = new_table()
    first, second, third = connection(), connection(), connection()
    table.seen(first, client("a", "g1"))
    table.seen(second, client("b", "g1"))

    with pytest.raises(RefusedError) as refused:
        table.seen(third, client("c", "g1"))

    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    assert "are the limits" in refused.value.remark
    assert table.seen(second, client("b", "g2")) == [("g1", "b")]
    table.forget(first)
    table.seen(third, client("c", "g1"))


async def test_the_clients_of_a_large_group_are_told_over_many_turns_each_once() -> None:
    """With 20,000 clients, one turn told all of them."""
    table, state = new_table()
    connections: list[Any] = [connection() for _ in range(5 * PER_TURN)]
    for number, connected in enumerate(connections):
        table.seen(connected, client(f"c{number}", "g1", "g2"))

    def change(*groups: str) -> None:
        state.tables.groups.changed.update(dict.fromkeys(groups))
        table.notify_changed()

    change("g1")
    turns = [sum(len(each.told) for each in connections)]
    change("g1", "g2")
    table.forget(connections[-1])
    # The first ones are told twice that g1 has changed, the last one nothing.
    while turns[-1] < PER_TURN + 2 * (len(connections) - 1):
        await asyncio.sleep(0)
        turns.append(sum(len(each.told) for each in connections))

    per_turn = [after - before for before, after in itertools.pairwise([0, *turns])]
    assert max(per_turn) == PER_TURN
    assert connections[-1].told == [], "it has left before its turn"
    assert all(each.told == ["g1", "g2"] for each in connections[PER_TURN:-1])
    assert all(sorted(each.told) == ["g1", "g1", "g2"] for each in connections[:PER_TURN])


async def test_a_large_group_that_changes_all_the_time_holds_up_no_other() -> None:
    table, state = new_table()
    for number in range(3 * PER_TURN):
        table.seen(connection(), client(f"c{number}", "g1"))
    other: Any = connection()
    table.seen(other, client("other", "g2"))
    table.notify_changed()
    for turn in range(20):
        state.tables.groups.changed.update(dict.fromkeys(("g1", "g2") if turn == 0 else ("g1",)))
        table.notify_changed()
        await asyncio.sleep(0)

    assert other.told == ["g2"]


def test_a_snapshot_that_replaces_the_state_is_told_to_every_group() -> None:
    table, state = new_table()
    connected: Any = connection()
    table.seen(connected, client("a", "g1", "g2"))
    table.notify_changed()
    assert connected.told == []

    state.tables = BrokerState().tables
    table.notify_changed()

    assert sorted(connected.told) == ["g1", "g2"]


class Visits(list[Consumer]):
    """The clients of a group that were looked at."""

    def __init__(self, state: BrokerState, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        found = state.consumers

        def consumers(group: str) -> list[Consumer]:
            self.extend(found(group))
            return found(group)

        monkeypatch.setattr(state, "consumers", consumers)


def test_the_clients_of_a_group_are_looked_at_once_however_many_pull_without_a_heartbeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a failover each pull of 1,000 clients of 4.9 looked at all of them, for up to 30 s."""
    table, state = new_table()
    for number in range(100):
        state.tables.groups.join(f"c{number}", consumer("g", "t", "%RETRY%g", version=number))
    table.notify_changed()
    visits = Visits(state, monkeypatch)
    for _ in range(100):
        found = [
            table.subscription(connection(), "g", topic) for topic in ("t", "%RETRY%g", "other")
        ]
        assert [each and each.sub_version for each in found] == [99, 99, None]
    assert len(visits) == 100

    state.tables.groups.join("c0", consumer("g", "t", version=200))
    table.notify_changed()
    newest = table.subscription(connection(), "g", "t")
    assert newest is not None
    assert newest.sub_version == 200
    assert len(visits) == 200


def test_nothing_is_kept_of_groups_that_nobody_belongs_to() -> None:
    table, _ = new_table()
    for number in range(10):
        assert table.subscription(connection(), f"g{number}", "t") is None

    assert not table._newest


_joins = st.tuples(
    st.sampled_from("abc"),
    st.sampled_from(("g1", "g2")),
    st.none() | st.tuples(st.sampled_from(("t", "u")), st.integers(0, 4)),
)


@given(st.lists(st.one_of(_joins, st.just("snapshot"), st.just("ask")), max_size=30))
def test_a_pull_without_a_heartbeat_means_the_newest_subscription_of_its_group(
    steps: list[Any],
) -> None:
    table, state = new_table()
    for step in steps:
        if step == "snapshot":
            state.tables = BrokerState().tables  # of which every client has left
        elif step != "ask":
            client_id, group, said = step
            if said is None:
                state.tables.groups.leave(client_id, group)
            else:
                state.tables.groups.join(client_id, consumer(group, said[0], version=said[1]))
        table.notify_changed()
        for group in ("g1", "g2") if step == "ask" else ():
            for topic in ("t", "u"):
                versions = [
                    each.sub_version
                    for member in state.consumers(group)
                    for each in member.subscription_data_set
                    if each.topic == topic
                ]
                found = table.subscription(connection(), group, topic)
                assert (found and found.sub_version) == max(versions, default=None)
