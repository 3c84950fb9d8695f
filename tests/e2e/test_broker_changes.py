"""What happens to a group of brokers on a cluster while Java clients send and consume."""

from collections.abc import Callable

import pytest

from dledger_e2e.failovers import acting_operator, delete_operators
from dledger_e2e.group import Group
from dledger_e2e.java_load import NAME_SERVER, JavaLoad
from dledger_e2e.rocketmq import NAMES_POD, POD, start_name_server
from dledger_e2e.waiting import wait_for
from tools.java_dledger import JavaMissingError

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.sampled(1, among="changes of a broker on the cluster"),
]

CHANGED_S = 300.0


def wait_until_whole(broker: Group, members: int = 3) -> None:
    wait_for(lambda: len(broker.pods()) == members, f"{members} pods exist", CHANGED_S)
    broker.wait_for_condition("QuorumHealthy", "True", "AllMembersReady", CHANGED_S)


def change(broker: Group, load: JavaLoad, what: str, /, **spec: object) -> None:
    with load.during(what):
        broker.change(**spec)
        wait_for(broker.is_as_asked, "every pod is as the spec asks", CHANGED_S)


def test_rolls_cost_java_clients_no_send(
    broker: Group, rounds: Callable[[int], int], capsys: pytest.CaptureFixture[str]
) -> None:
    with JavaLoad(broker, NAME_SERVER) as load:
        for number in range(rounds(1)):
            flush_disk_type = ("AsyncFlush", "SyncFlush")[number % 2]
            change(broker, load, "rolls", log={"flushDiskType": flush_disk_type})
        load.assert_nothing_was_lost()

    with capsys.disabled():
        print(f"\n{load}")
    assert not load.failed


def test_changes_of_size_cost_java_clients_no_send(
    broker: Group, rounds: Callable[[int], int], capsys: pytest.CaptureFixture[str]
) -> None:
    with JavaLoad(broker, NAME_SERVER) as load:
        for _ in range(rounds(1)):
            change(broker, load, "growths from three to five", replicas=5)
            change(broker, load, "shrinks from five to three", replicas=3)
        load.assert_nothing_was_lost()

    with capsys.disabled():
        print(f"\n{load}")
    assert not load.failed


def test_java_clients_go_on_when_operator_and_leader_die_together(
    broker: Group, rounds: Callable[[int], int], capsys: pytest.CaptureFixture[str]
) -> None:
    with JavaLoad(broker, NAME_SERVER) as load:
        for _ in range(rounds(1)):
            with load.during("kills of operator and leader"):
                leader = broker.leader_pod()
                delete_operators(broker, acting_operator(broker))
                broker.delete_pod(leader)
            wait_until_whole(broker)
        load.assert_nothing_was_lost()

    with capsys.disabled():
        print(f"\n{load}")


def test_java_clients_go_on_when_the_leaders_node_is_lost(
    broker: Group, rounds: Callable[[int], int], capsys: pytest.CaptureFixture[str]
) -> None:
    """A lost node closes no connections. A client that was connected to it waits for its own
    time-out, so a send may fail; what was acknowledged is delivered all the same.
    """
    local = broker.deployment.local
    if local is None:
        pytest.skip("a node can be cut off only on the local cluster")
    clients_node = broker.get("pod", POD)["spec"]["nodeName"]
    with JavaLoad(broker, NAME_SERVER) as load:
        for _ in range(rounds(1)):
            while broker.pods()[leader := broker.leader_pod()]["spec"]["nodeName"] == clients_node:
                broker.delete_pod(leader)  # the clients must survive
                wait_until_whole(broker)
            number = broker.node_number_of(leader)
            try:
                with load.during("losses of the leader's node"):
                    local.stop_node(number)
            finally:
                local.start_node(number)
            wait_until_whole(broker)
        load.assert_nothing_was_lost()

    with capsys.disabled():
        print(f"\n{load}")


def test_java_clients_find_the_group_at_a_name_server_that_dies_and_comes_back(
    broker: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        address = start_name_server(broker)
    except JavaMissingError as error:
        pytest.skip(str(error))
    broker.change(broker={"nameServers": [address]})
    wait_for(broker.is_as_asked, "every pod knows the name server", CHANGED_S)
    broker.wait_for_condition("BrokerServing", "True", "Serving")

    with JavaLoad(broker, address) as load:
        with load.during("leaders deleted"):
            broker.delete_pod(broker.leader_pod())
        wait_until_whole(broker)
        with load.during("deaths of the name server"):
            broker.delete_pod(NAMES_POD)
            broker.wait_for_condition("BrokerServing", "True", "NotRegistered")
            broker.delete_pod(broker.leader_pod())
        start_name_server(broker)
        broker.wait_for_condition("BrokerServing", "True", "Serving", CHANGED_S)
        load.assert_nothing_was_lost()

    with capsys.disabled():
        print(f"\n{load}")
    [server] = broker.status()["broker"]["nameServers"]
    assert server["registered"] == ["n0", "n1", "n2"]
