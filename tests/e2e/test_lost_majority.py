"""A group that has lost the volumes of its majority for good, and goes on from one survivor.

The steps are those of `docs/operations/recovery.md`, "After the loss of a majority".
"""

import re
from typing import Any

import pytest

from dledger_e2e.group import Group, claim_name, member_of
from dledger_e2e.load import Load, assert_nothing_was_lost
from dledger_e2e.waiting import wait_for
from tools.deployment import CommandError

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.sampled(1, among="volumes on the cluster"),
]

ADOPTER = "adopter"
WHOLE_AGAIN_S = 240.0
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def start_adopter(group: Group, survivor: str) -> None:
    """Run a pod with the node image that mounts the survivor's volume claim, and waits."""
    template = group.get("statefulset", group.name)["spec"]["template"]["spec"]
    node = template["containers"][0]
    data = next(each for each in node["volumeMounts"] if each["name"] == "data")
    container = {
        "name": ADOPTER,
        "image": node["image"],
        "command": ["sleep", "infinity"],
        "volumeMounts": [data],
        "securityContext": node["securityContext"],
    }
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": ADOPTER},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "securityContext": template["securityContext"],
            "containers": [container],
            "volumes": [
                {"name": "data", "persistentVolumeClaim": {"claimName": claim_name(survivor)}}
            ],
        },
    }
    group.deployment.kubernetes.apply(manifest, f"--namespace={group.namespace}")
    group.kubectl("wait", "--for=condition=Ready", f"pod/{ADOPTER}", "--timeout=120s")


def adopt(group: Group, survivor: str, *arguments: str) -> str:
    """Run `store adopt` on the survivor's folder. Raises CommandError."""
    settings: dict[str, Any] = group.get("configmap", f"{group.name}-settings")["data"]
    peers = f"--peers={settings['DLEDGER_PEERS']}"
    folder = f"/data/store/dledger-{member_of(survivor)}"
    return group.kubectl(
        "exec", ADOPTER, "--", "dledger-node", "store", "adopt", peers, *arguments, folder
    )


def test_a_survivor_is_adopted_and_the_group_becomes_whole_with_all_that_it_had(
    group: Group,
) -> None:
    with Load(group, per_second=500) as load:
        load.wait_for_more(1000)
    leader = group.leader_pod()
    survivor, *lost = sorted(group.pods(), key=lambda pod: pod == leader)
    end = max(each.index for each in load.acknowledged)

    def holds_everything() -> bool:
        status = group.node_status(survivor)
        return status is not None and status.ledger_end_index >= end

    wait_for(holds_everything, f"{survivor} holds every acknowledged entry")
    first_identity = group.get("dlg", group.name)["status"]["identity"]
    group.change(paused=True)
    group.kubectl("scale", f"statefulset/{group.name}", "--replicas=0")
    wait_for(lambda: not group.pods(), "all members have stopped")

    start_adopter(group, survivor)
    with pytest.raises(CommandError, match="--yes"):
        adopt(group, survivor)
    identity = UUID.findall(adopt(group, survivor, "--yes"))[-1]
    assert identity != first_identity
    group.kubectl("delete", "pod", ADOPTER)
    group.kubectl("delete", "pvc", *map(claim_name, lost))

    annotation = f"dledger.io/group-identity={identity}"
    group.kubectl("annotate", "dlg", group.name, annotation, "--overwrite")
    group.change(paused=False)
    group.wait_for_condition("QuorumHealthy", "True", "AllMembersReady", WHOLE_AGAIN_S)
    group.wait_until_ready(WHOLE_AGAIN_S)

    assert group.status()["identity"] == identity
    assert_nothing_was_lost(group, load)
    with Load(group, per_second=500) as later:
        later.wait_for_more(500)
    assert_nothing_was_lost(group, later)
