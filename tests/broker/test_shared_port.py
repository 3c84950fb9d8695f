"""Members that share one port, the group's address: what clients find there, whoever leads."""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dledger_broker_client.client import BrokerClient
from dledger_client.local.processes import listening_on
from dledger_formats.rocketmq import message_id
from dledger_formats.rocketmq.codes import RequestCode, ResponseCode
from dledger_formats.rocketmq.message_record import pack_host
from dledger_formats.rocketmq.names import TopicRoute
from tools.groups.broker_group import BrokerGroup
from tools.groups.waiting import wait_for

pytestmark = pytest.mark.group

CLIENTS = 30
CROWD = 600


@pytest.fixture
def group(tmp_path: Path) -> Iterator[BrokerGroup]:
    """Three members that share a port."""
    connections = CROWD + CLIENTS + 10
    with BrokerGroup(
        tmp_path, shares_port=True, connections_per_address_max=connections
    ) as running:
        running.master()
        yield running


def listeners(group: BrokerGroup) -> set[str]:
    """Return the members that listen at the shared port."""
    pids = listening_on({int(group.group_address.rpartition(":")[2])})
    return {member for member in group.running() if group.process_id(member) in pids}


def addresses_by_id(group: BrokerGroup, address: str) -> dict[str, str]:
    with BrokerClient(address) as client:
        answer = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
    [broker] = TopicRoute.from_json(answer.body).broker_datas
    return dict(broker.broker_addrs)


def test_every_member_names_the_address_of_the_group_as_id_0_whoever_leads(
    group: BrokerGroup,
) -> None:
    expected = {"0": group.group_address} | {
        str(1 + number): address for number, address in enumerate(group.broker_addresses.values())
    }
    before = [addresses_by_id(group, address) for address in group.broker_addresses.values()]
    leader = group.master()
    group.kill(leader)
    others = [group.broker_addresses[member] for member in group.running()]
    during = [addresses_by_id(group, address) for address in others]

    assert before == [expected] * 3
    assert during == [expected] * 2


def test_clients_of_a_killed_leader_reach_a_living_member_at_once(group: BrokerGroup) -> None:
    def ask() -> int:
        with BrokerClient(group.group_address) as client:
            return client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).code

    before = [ask() for _ in range(CLIENTS)]
    group.kill(group.master())
    after = [ask() for _ in range(CLIENTS)]
    group.master()
    with BrokerClient(group.group_address) as client:
        sent = client.send("kept")

    assert before == after == [ResponseCode.SUCCESS] * CLIENTS
    assert sent.code == ResponseCode.SUCCESS


def test_a_message_is_found_by_its_id_at_the_address_of_the_group(group: BrokerGroup) -> None:
    with BrokerClient(group.group_address) as client:
        sent = client.send("found", b"it")
        assert sent.ext_fields is not None
        found = message_id.parse(sent.ext_fields["msgId"])
        ext = {"offset": str(found.physical_offset)}
        wait_for(
            lambda: client.ask(RequestCode.VIEW_MESSAGE_BY_ID, ext).code == ResponseCode.SUCCESS,
            "the message is visible",
        )

    host, _, port = group.group_address.rpartition(":")
    assert found.store_host == pack_host(host, int(port))


def test_a_member_without_a_leader_leaves_the_shared_port_to_the_others(
    group: BrokerGroup,
) -> None:
    alone, *others = group.peers
    assert listeners(group) == set(group.peers)
    for member in others:
        group.freeze(member)
    wait_for(lambda: alone not in listeners(group), f"{alone} accepts no new clients there")
    for member in others:
        group.thaw(member)

    wait_for(lambda: listeners(group) == set(group.peers), f"{alone} accepts new clients again")


def test_clients_that_a_killed_member_resets_connect_to_living_ones_only(
    group: BrokerGroup,
) -> None:
    """A client that is reset once more has used up two of its three tries within milliseconds."""
    leader = group.master()
    with contextlib.ExitStack() as stack:

        def connect(address: str) -> BrokerClient:
            return stack.enter_context(BrokerClient(address))

        for _ in range(CROWD):  # so that the kernel needs some time to close what it had
            connect(group.broker_addresses[leader])
        watch = connect(group.broker_addresses[leader])
        assert watch.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).code == 0
        killer = threading.Thread(target=group.kill, args=(leader,))
        killer.start()
        with pytest.raises(ConnectionError):
            watch.request()
        again = [connect(group.group_address) for _ in range(CLIENTS)]
        codes = Counter(ask_once(client) for client in again)
        killer.join()

    assert codes == {"SUCCESS": CLIENTS}


def ask_once(client: BrokerClient) -> str:
    """Return the code of an answer, or how the connection ended."""
    try:
        return ResponseCode(client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).code).name
    except ConnectionError as error:
        return str(error)
