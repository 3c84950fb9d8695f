"""A group as a RocketMQ broker on a real cluster: a stock Java client uses it through its Service,
by the cluster's own kube-proxy, while leaders are deleted.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from dledger_e2e.audits import audit
from dledger_e2e.group import Group
from dledger_e2e.rocketmq import Event, JavaClient, start_pod
from dledger_e2e.waiting import wait_for
from tools.java_dledger import JavaMissingError
from tools.java_rocketmq import find_client

pytestmark = pytest.mark.cluster
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "broker.yaml"
NAME_SERVER = "orders-broker:9876"
TOPIC = "orders"


@pytest.fixture
def broker(make_group: Callable[..., Group]) -> Group:
    """The group of the example, whose members serve, with a pod that has the Java client."""
    try:
        find_client("5.3.3")
    except JavaMissingError as error:
        pytest.skip(str(error))
    example = yaml.safe_load(EXAMPLE.read_text())
    group = make_group(example["metadata"]["name"], **example["spec"])
    start_pod(group)
    group.wait_until_ready()
    group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady")
    return group


def place(event: Event) -> tuple[int, int]:
    return event["queue"], event["offset"]


def assert_all_were_delivered(acknowledged: list[Event], received: list[Event]) -> None:
    """Check that each acknowledged message came from its place, and no place held two messages."""
    assert {event["status"] for event in acknowledged} == {"SEND_OK"}
    delivered = {place(event): event["key"] for event in received}
    assert all(delivered[place(event)] == event["key"] for event in received)
    assert all(delivered.get(place(event)) == event["key"] for event in acknowledged)
    assert len({place(event) for event in acknowledged}) == len(acknowledged)


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


def test_java_clients_lose_nothing_while_leaders_are_deleted_and_the_logs_are_sound(
    broker: Group, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    kills = int(request.config.getoption("--leader-kills"))
    sends_s, deliveries_s = [], []
    sending = JavaClient(broker, "send", NAME_SERVER, topic=TOPIC, count=10_000_000, pause=2)
    consuming = JavaClient(broker, "push", NAME_SERVER, topic=TOPIC, group="billing")
    with sending as producer, consuming as consumer:
        for _ in range(kills):
            producer.wait_for_more("sent", 200)
            consumer.wait_for_more("received", 200)
            killed_s = time.monotonic()
            broker.delete_pod(broker.leader_pod())
            producer.wait_for_more("sent", 400, timeout_s=90)
            consumer.wait_for_more("received", 400, timeout_s=90)
            sends_s.append(producer.longest_pause_s("sent", killed_s))
            deliveries_s.append(consumer.longest_pause_s("received", killed_s))
            wait_for(lambda: len(broker.pods()) == 3, "three pods exist")
            broker.wait_for_condition("QuorumHealthy", "True", "AllMembersReady")
        acknowledged = producer.of_kind("sent")
        wanted = {event["key"] for event in acknowledged}
        consumer.wait_until(
            lambda: wanted <= {event["key"] for event in consumer.of_kind("received")},
            "every acknowledged message is delivered",
            timeout_s=60,
        )
        received, failed = consumer.of_kind("received"), producer.of_kind("failed")

    with capsys.disabled():
        print(
            f"\n{kills} leaders deleted, {len(acknowledged)} sends acknowledged, {len(failed)} "
            f"failed, {len(received) - len({event['key'] for event in received})} delivered twice; "
            f"pauses: sends median {statistics.median(sends_s):.2f} s, max {max(sends_s):.2f} s, "
            f"deliveries median {statistics.median(deliveries_s):.2f} s, "
            f"max {max(deliveries_s):.2f} s"
        )
        for event in failed:
            print(f"failed: {event}")
    assert_all_were_delivered(acknowledged, received)
    audited = audit(broker, "after-the-kills")
    assert audited.get("verdict") == "Sound", audited
