"""A group from its creation to its deletion, with invalid changes and problems in between."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from dledger_e2e.group import Group
from dledger_e2e.load import Load, assert_nothing_was_lost
from dledger_e2e.rolls import halted_pod
from dledger_e2e.waiting import wait_for
from tools.deployment import OPERATOR_NAMESPACE, CommandError, Deployment

pytestmark = pytest.mark.cluster


def test_kubectl_get_shows_the_leader_term_and_members_of_a_group(calm_group: Group) -> None:
    leader = calm_group.leader_pod()

    status = calm_group.status()
    row = calm_group.kubectl("get", "dlg", calm_group.name, "--no-headers").split()

    assert status["leader"]["pod"] == leader
    assert row[:3] == [calm_group.name, "True", leader]
    assert row[3] == str(status["leader"]["term"])
    assert row[4] == "3/3"
    assert status["observedGeneration"] == 1
    assert {each["role"] for each in status["members"]} == {"master", "slave"}
    assert status["toleratedFailures"] == 1


def test_the_slave_service_has_both_followers_as_endpoints(calm_group: Group) -> None:
    leader = calm_group.leader_pod()
    selector = f"--selector=kubernetes.io/service-name={calm_group.name}-slave"

    def slaves() -> list[str]:
        return sorted(
            endpoint["targetRef"]["name"]
            for each in calm_group.get("endpointslices", selector)["items"]
            for endpoint in each.get("endpoints") or []
        )

    others = sorted(set(calm_group.pods()) - {leader})
    wait_for(lambda: slaves() == others, "both followers are endpoints of the slave Service")


def test_the_operators_metrics_name_the_leader(calm_group: Group) -> None:
    leader = calm_group.leader_pod()
    pod = calm_group.deployment.operator_pod()

    page = calm_group.deployment.kubernetes.page(OPERATOR_NAMESPACE, pod, 8080, "/metrics")

    metrics = page.splitlines()

    here = f'namespace="{calm_group.namespace}"'
    leaders = [
        line for line in metrics if line.startswith("dledger_group_leader{") and here in line
    ]
    assert len(leaders) == 1
    assert f'pod="{leader}"' in leaders[0]
    doubles = [line for line in metrics if line.startswith("dledger_double_master_observed_total{")]
    assert doubles
    assert all(line.endswith(" 0.0") for line in doubles)


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ('{"spec":{"replicas":2}}', "odd"),
        ('{"spec":{"storage":{"storageClassName":"other"}}}', "storageClassName"),
        ('{"spec":{"log":{"segmentSize":"32Mi"}}}', "segmentSize"),
    ],
    ids=["an even number of members", "another storage class", "another segment size"],
)
def test_an_invalid_change_is_refused_and_no_pod_is_replaced(
    calm_group: Group, patch: str, words: str
) -> None:
    before = calm_group.uids()

    with pytest.raises(CommandError, match=words):
        calm_group.kubectl("patch", "dlg", calm_group.name, "--type=merge", f"--patch={patch}")

    assert calm_group.uids() == before


@pytest.mark.sampled(1, among="groups in trouble on the cluster")
def test_the_condition_degraded_names_an_image_that_cannot_be_pulled(
    make_group: Callable[..., Group],
) -> None:
    group = make_group(image={"repository": "localhost/no-such-image", "tag": "1"})

    def named() -> bool:
        degraded = group.condition("Degraded")
        return degraded.get("status") == "True" and "no-such-image" in degraded["message"]

    wait_for(named, "the condition Degraded names the image")
    assert group.condition("Ready")["status"] != "True"


@pytest.mark.sampled(1, among="groups in trouble on the cluster")
def test_a_new_image_that_does_not_exist_costs_one_follower_and_the_group_serves(
    group: Group,
) -> None:
    before, leader = group.uids(), group.leader_pod()

    with Load(group, per_second=500) as load:
        group.change(image={"repository": "localhost/no-such-image", "tag": "1"})
        halted = halted_pod(group)
        load.wait_for_more(1_000)

    after = group.uids()
    assert {pod for pod, uid in before.items() if after[pod] != uid} == {halted}
    assert halted != leader
    assert group.ready_pods() == set(before) - {halted}
    assert group.leader_pod() == leader
    group.wait_for_condition("Ready", "True")
    assert (load.refused, load.unknown) == (0, 0), load.failures
    assert_nothing_was_lost(group, load)


@pytest.mark.sampled(1, among="groups in trouble on the cluster")
def test_the_condition_degraded_names_a_storage_class_that_does_not_exist(
    make_group: Callable[..., Group],
) -> None:
    group = make_group(storage={"size": "1Gi", "storageClassName": "no-such-class"})

    degraded = group.wait_for_words("Degraded", "no-such-class")

    assert degraded["status"] == "True"


@pytest.mark.sampled(1, among="groups in trouble on the cluster")
def test_a_full_volume_is_reported_and_no_acknowledged_append_is_lost(
    deployed: Deployment, make_group: Callable[..., Group]
) -> None:
    local = deployed.local
    if local is None:
        pytest.skip("volumes with a hard size limit exist only on the local cluster")
    storage_class = f"limited-{uuid.uuid4().hex[:8]}"
    for node in (1, 2, 3):
        local.add_disk(node, "72Mi", name=f"{storage_class}-{node}", storage_class=storage_class)
    group = make_group(storage={"size": "48Mi", "storageClassName": storage_class})
    group.start_client()
    group.wait_until_ready()  # the load below gives an append only one second
    group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady")
    before = group.uids()

    with Load(group, per_second=20_000, in_flight=500, body_bytes=4_000, deadline_s=1) as load:
        degraded = group.wait_for_words("Degraded", "full", timeout_s=180)

    assert degraded["status"] == "True"
    assert group.uids() == before
    assert group.restarts() == 0
    assert load.refused + load.unknown > 0
    assert_nothing_was_lost(group, load)


def test_deleting_a_group_deletes_its_pods_and_keeps_its_volume_claims(group: Group) -> None:
    group.kubectl("delete", "dlg", group.name, "--timeout=60s")

    wait_for(lambda: not group.pods(), "all pods are deleted", timeout_s=90)
    volumes: list[Any] = group.get("pvc")["items"]
    assert len(volumes) == 3, "retain.whenDeleted defaults to Retain"
