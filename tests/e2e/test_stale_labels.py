"""Clients that know nothing but the Service, while no operator moves the leader's label."""

import json
from collections.abc import Iterator

import pytest

from dledger_e2e.group import Group
from dledger_e2e.load import Load, assert_nothing_was_lost
from dledger_e2e.waiting import wait_for
from tools.deployment import OPERATOR_NAMESPACE, RELEASE, Deployment

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.sampled(1, among="closed doors on the cluster"),
]
DEPLOYMENT = f"deployment/{RELEASE}"
STOP = "import os, signal; os.kill(1, signal.SIGTERM)"
PAUSE_S_MAX = 5.0
"""A follower passes appends on to the leader, so none waits long under a stale label."""


def run_operators(deployment: Deployment, count: int) -> None:
    """Let the operator have so many replicas; wait until they are there or gone."""
    inside = f"--namespace={OPERATOR_NAMESPACE}"
    deployment.kubernetes.kubectl("scale", DEPLOYMENT, f"--replicas={count}", inside)
    deployment.kubernetes.kubectl("rollout", "status", DEPLOYMENT, "--timeout=120s", inside)
    wait_for(lambda: len(deployment.operator_pods()) == count, f"{count} operators exist")


@pytest.fixture
def without_operator(group: Group) -> Iterator[None]:
    """The cluster without an operator, until the test ends."""
    inside = f"--namespace={OPERATOR_NAMESPACE}"
    found = group.deployment.kubernetes.get(DEPLOYMENT, inside)
    try:
        run_operators(group.deployment, 0)
        yield
    finally:
        run_operators(group.deployment, found["spec"]["replicas"])


def restarts(group: Group, pod: str) -> int:
    """Return how often the member's container has been started again in its pod."""
    states = group.pods()[pod]["status"].get("containerStatuses") or []
    return sum(int(each["restartCount"]) for each in states)


def is_ready(group: Group, pod: str) -> bool:
    conditions = group.pods()[pod]["status"].get("conditions") or []
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


def serves_as_follower(group: Group, pod: str) -> bool:
    """Return whether the pod restarted, is the Service's only endpoint, and does not lead."""
    if not restarts(group, pod) or not is_ready(group, pod) or group.master_endpoints() != [pod]:
        return False
    status = group.node_status(pod)
    return status is not None and status.ready and not status.master


def test_a_stale_label_costs_a_hop_and_no_error(
    group: Group, without_operator: None, capsys: pytest.CaptureFixture[str]
) -> None:
    old = group.leader_pod()
    with Load(group, per_second=200, follow=False) as load:
        load.wait_for_more(200)
        unknown_before = load.unknown
        group.kubectl("exec", old, "--", "python3", "-c", STOP)
        wait_for(lambda: serves_as_follower(group, old), f"{old} follows under its old label")
        since = len(load.acknowledged)
        load.wait_for_more(1_000)
        assert group.masters() == group.master_endpoints() == [old]
        assert serves_as_follower(group, old)
        pause_s = load.longest_pause_s(since)
        reads = group.client_command("get", "--first=0", "--last=0", "--no-follow", "--output=json")
        first = group.deployment.kubernetes.kubectl(*reads).splitlines()[0]
        assert json.loads(first)["index"] == 0

    with capsys.disabled():
        print(
            f"\n{len(load.acknowledged)} acknowledged, {load.unknown} unknown, {load.refused} "
            f"refused; longest pause under the stale label: {pause_s:.3f} s"
        )
    assert (load.refused, load.unknown) == (0, unknown_before), load.failures
    assert pause_s < PAUSE_S_MAX
    assert_nothing_was_lost(group, load)
