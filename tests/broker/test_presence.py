"""Clients of one group that are connected to different members."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dledger_broker_client.client import BrokerClient, consumer
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group

Code = RequestCode


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerGroup]:
    """Three members that no test stops."""
    with BrokerGroup(tmp_path_factory.mktemp("presence")) as running:
        running.master()
        yield running


@pytest.fixture
def clients(group: BrokerGroup) -> Iterator[list[BrokerClient]]:
    """One connection to each member, that to the leader first."""
    with ExitStack() as stack:
        members = sorted(group.peers, key=lambda member: member != group.master())
        addresses = [group.broker_addresses[member] for member in members]
        yield [stack.enter_context(BrokerClient(address)) for address in addresses]


def wait_until_listed(clients: list[BrokerClient], group: str, *ids: str) -> None:
    for client in clients:
        wait_for(lambda at=client: at.client_ids(group) == list(ids), f"{group} has {ids}")  # type: ignore[misc]


def test_a_client_finds_itself_at_its_member_once_its_heartbeat_is_answered(
    clients: list[BrokerClient],
) -> None:
    for number, client in enumerate(clients):
        assert client.beat(f"c{number}", consumer("found", "t")).code == ResponseCode.SUCCESS
        assert f"c{number}" in client.client_ids("found")


def test_clients_of_different_members_see_each_other_and_are_told(
    clients: list[BrokerClient],
) -> None:
    for number, client in enumerate(clients):
        client.beat(f"c{number}", consumer("mixed", "t"))
    wait_until_listed(clients, "mixed", "c0", "c1", "c2")
    for client in clients:
        client.client_ids("mixed")
        client.requests.clear()

    ext = {"clientID": "c2", "consumerGroup": "mixed"}
    assert clients[2].ask(Code.UNREGISTER_CLIENT, ext).code == ResponseCode.SUCCESS

    for client in clients[:2]:
        assert client.request().code == Code.NOTIFY_CONSUMER_IDS_CHANGED
    wait_until_listed(clients, "mixed", "c0", "c1")


def test_a_client_leaves_when_its_connection_to_its_only_member_breaks(
    group: BrokerGroup, clients: list[BrokerClient]
) -> None:
    follower = next(member for member in group.peers if member != group.master())
    clients[0].beat("c0", consumer("broken", "t"))
    with BrokerClient(group.broker_addresses[follower]) as breaking:
        breaking.beat("c1", consumer("broken", "t"))
        wait_until_listed(clients, "broken", "c0", "c1")

    wait_until_listed(clients, "broken", "c0")


def test_a_client_stays_while_it_is_connected_to_any_member(
    group: BrokerGroup, clients: list[BrokerClient]
) -> None:
    with BrokerClient(group.broker_addresses[group.master()]) as first:
        first.beat("c1", consumer("doubled", "t"))
        clients[1].beat("c1", consumer("doubled", "t"))
    with BrokerClient(group.broker_addresses[group.master()]) as later:
        later.beat("c2", consumer("doubled", "t"))
        wait_until_listed(clients, "doubled", "c1", "c2")

    wait_until_listed(clients, "doubled", "c1")


def test_clients_of_members_that_live_stay_when_the_leader_dies(tmp_path: Path) -> None:
    with BrokerGroup(tmp_path) as group:
        leader = group.master()
        doors = [member for member in group.peers if member != leader]
        with (
            BrokerClient(group.broker_addresses[doors[0]]) as first,
            BrokerClient(group.broker_addresses[doors[1]]) as second,
        ):
            first.beat("c1", consumer("kept", "t"))
            second.beat("c2", consumer("kept", "t"))
            wait_until_listed([first, second], "kept", "c1", "c2")
            group.kill(leader)
            group.master()
            with BrokerClient(group.broker_addresses[doors[0]]) as later:
                later.beat("c3", consumer("kept", "t"))
                wait_until_listed([first, second], "kept", "c1", "c2", "c3")
            wait_until_listed([first, second], "kept", "c1", "c2")
