"""The cost of an idle group's pods, with the kubelet's probes and the operator's requests."""

import time
from typing import Final

import pytest

from dledger_e2e.group import Group
from tools.groups.turns import slowness

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.sampled(1, among="closed doors on the cluster"),
]

MEASURED_S: Final = 60.0
LEADER_MILLICORES_MAX: Final = 8.0
FOLLOWER_MILLICORES_MAX: Final = 3.0
BUSY: Final = 2.0
"""Other work that shares the processors' caches makes the same work take up to so much longer."""
PROCESSOR_S = """
import os
fields = open("/proc/1/stat").read().rpartition(")")[2].split()
print((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
"""
"""A program for a member's pod: it prints the processor time of the member's process."""


def processor_s(group: Group, pod: str) -> float:
    """Return the processor time that a member's process has used, in seconds."""
    return float(group.kubectl("exec", pod, "--", "python3", "-c", PROCESSOR_S))


def test_the_pods_of_an_idle_group_cost_little(
    group: Group, capsys: pytest.CaptureFixture[str]
) -> None:
    group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady")
    leader, pods = group.leader_pod(), sorted(group.pods())
    slower = slowness()
    before = {pod: (processor_s(group, pod), time.monotonic()) for pod in pods}
    time.sleep(MEASURED_S)  # the length of the measurement, in which nothing is to happen

    millicores = {
        pod: 1000 * (processor_s(group, pod) - used_s) / (time.monotonic() - at_s)
        for pod, (used_s, at_s) in before.items()
    }
    with capsys.disabled():
        shown = ", ".join(
            f"{'leader' if pod == leader else 'follower'} {millicores[pod]:.1f}" for pod in pods
        )
        print(f"\nmillicores of idle pods: {shown} (a machine slower by {slower:.1f})")
    assert group.leader_pod() == leader
    for pod in pods:
        bound = LEADER_MILLICORES_MAX if pod == leader else FOLLOWER_MILLICORES_MAX
        assert millicores[pod] <= bound * BUSY * slower, pod
