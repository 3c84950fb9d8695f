"""A group as a RocketMQ broker on a real cluster: a stock Java client uses it through its Service,
by the cluster's own kube-proxy, while leaders are deleted.
"""

import pytest

from dledger_e2e.audits import audit
from dledger_e2e.group import Group
from dledger_e2e.java_load import (
    FAILED_AT_A_KILL_MAX,
    NAME_SERVER,
    OWN_TIMEOUT_S,
    PAUSE_S_MAX,
    JavaLoad,
)
from dledger_e2e.rocketmq import CLIENT_VERSIONS
from dledger_e2e.waiting import wait_for

pytestmark = pytest.mark.cluster


def wait_until_told(broker: Group) -> dict[str, object]:
    """Wait until all members tell clients the IP that the Service has now; return the status."""

    def told() -> dict[str, object] | None:
        services = broker.get("service", "--selector=dledger.io/group=orders")["items"]
        ips = [
            each["spec"]["clusterIP"]
            for each in services
            if each["metadata"]["name"] == "orders-broker"
        ]
        found: dict[str, object] = broker.status().get("broker", {})
        advertised = [f"{ip}:10911" for ip in ips]
        return found if advertised and found.get("advertised") == advertised else None

    return wait_for(told, "all members tell clients the Service's IP")


def test_the_status_tells_clients_where_the_broker_is_also_after_the_service_is_deleted(
    broker: Group,
) -> None:
    status = wait_until_told(broker)
    serving = broker.wait_for_condition("BrokerServing", "True", "Serving")
    broker.kubectl("delete", "service", "orders-broker")
    again = wait_until_told(broker)

    assert status["address"] == f"orders-broker.{broker.namespace}.svc:9876"
    assert status["servingMembers"] == 3
    assert "3 of 3 members take clients" in serving["message"]
    assert again["advertised"] != status["advertised"]


@pytest.mark.sampled(1, by="broker")
@pytest.mark.parametrize("broker", CLIENT_VERSIONS, indirect=True)
def test_java_clients_lose_nothing_while_leaders_are_deleted_and_the_logs_are_sound(
    broker: Group, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    """A client of 4.9 may miss the reset of its connection, and then waits for its own time-out
    (docs/benchmarks/broker-failover.md).
    """
    kills = int(request.config.getoption("--leader-kills"))
    is_old = request.node.callspec.params["broker"] < "5"
    with JavaLoad(broker, NAME_SERVER) as load:
        with load.during("orderly deletions of the leader"):
            broker.kubectl("delete", "pod", broker.leader_pod(), "--wait=false")
            broker.wait_until_whole()
        failed_in_order = [*load.failed]
        for _ in range(kills):
            with load.during("leaders deleted"):
                broker.delete_pod(broker.leader_pod())
            broker.wait_until_whole()
        load.assert_nothing_was_lost()

    with capsys.disabled():
        print(f"\n{load}")
    assert not failed_in_order
    assert len(load.failed) <= FAILED_AT_A_KILL_MAX * kills
    own_s = OWN_TIMEOUT_S if is_old else 0.0
    load.assert_pauses_are_short(delivery_s_max=PAUSE_S_MAX + own_s)
    audited = audit(broker, "after-the-kills")
    assert audited.get("verdict") == "Sound", audited
