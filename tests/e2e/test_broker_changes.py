"""What happens to a group of brokers on a cluster while Java clients send and consume."""

from collections.abc import Callable

import pytest

from dledger_e2e.failovers import acting_operator, delete_operators
from dledger_e2e.group import Group
from dledger_e2e.java_load import (
    FAILED_AT_A_KILL_MAX,
    NAME_SERVER,
    OWN_TIMEOUT_S,
    PAUSE_S_MAX,
    JavaLoad,
)
from dledger_e2e.rocketmq import NAMES_POD, POD, start_name_server
from dledger_e2e.waiting import wait_for
from tools.java_dledger import JavaMissingError

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.sampled(1, among="changes of a broker on the cluster"),
]

CHANGED_S = 300.0
SEND_TIMEOUT_S = 3.0
"""The client's default; a send that meets a lost node takes this long to fail."""


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
    load.assert_pauses_are_short()


def test_java_clients_go_on_when_operator_and_leader_die_together(
    broker: Group, rounds: Callable[[int], int], capsys: pytest.CaptureFixture[str]
) -> None:
    kills = rounds(1)
    with JavaLoad(broker, NAME_SERVER) as load:
        for _ in range(kills):
            with load.during("kills of operator and leader"):
                leader = broker.leader_pod()
                delete_operators(broker, acting_operator(broker))
                broker.delete_pod(leader)
            wait_until_whole(broker)
        load.assert_nothing_was_lost()

    with capsys.disabled():
        print(f"\n{load}")
    assert len(load.failed) <= FAILED_AT_A_KILL_MAX * kills
    load.assert_pauses_are_short()


def test_java_clients_go_on_when_the_leaders_node_is_lost(
    broker: Group, rounds: Callable[[int], int], capsys: pytest.CaptureFixture[str]
) -> None:
    """A lost node closes no connections. A client that was connected to it waits for its own
    time-outs, so sends fail until then; what was acknowledged is delivered all the same.
    """
    losses, pause_s_max = rounds(1), OWN_TIMEOUT_S + PAUSE_S_MAX
    local = broker.deployment.local
    if local is None:
        pytest.skip("a node can be cut off only on the local cluster")
    clients_node = broker.get("pod", POD)["spec"]["nodeName"]
    with JavaLoad(broker, NAME_SERVER) as load:
        for _ in range(losses):
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
    assert len(load.failed) <= losses * pause_s_max / SEND_TIMEOUT_S
    load.assert_pauses_are_short(pause_s_max, pause_s_max)


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
    assert len(load.failed) <= 2 * FAILED_AT_A_KILL_MAX
    load.assert_pauses_are_short()
    [server] = broker.status()["broker"]["nameServers"]
    assert server["registered"] == ["n0", "n1", "n2"]
