"""Objects that are carried out once, created as a user would create them."""

import json
from typing import Any

from dledger_e2e.group import Group, claim_name
from dledger_e2e.waiting import wait_for

ENDED = ("Succeeded", "Failed")
ENDS_S = 120.0


def carry_out(group: Group, kind: str, name: str, **spec: str) -> dict[str, Any]:
    """Create an object about a group, wait until it has ended, and return its status."""
    order(group, kind, name, **spec)
    return wait_until_ended(group, kind, name)


def order(group: Group, kind: str, name: str, **spec: Any) -> None:
    """Create an object about a group."""
    manifest = {
        "apiVersion": "dledger.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"groupRef": {"name": group.name}, **spec},
    }
    group.deployment.kubernetes.apply(manifest, f"--namespace={group.namespace}")


def status_of(group: Group, kind: str, name: str) -> dict[str, Any]:
    """Return the status of an object; empty before the operator's first write."""
    status: dict[str, Any] = group.get(kind.lower(), name).get("status", {})
    return status


def wait_until_ended(group: Group, kind: str, name: str) -> dict[str, Any]:
    """Wait until an object has ended, and return its status."""

    def ended() -> dict[str, Any] | None:
        status = status_of(group, kind, name)
        return status if status.get("phase") in ENDED else None

    return wait_for(ended, f"{kind} {name} ends", ENDS_S)


def strand(group: Group, pod: str) -> None:
    """Bind a member to a machine that no longer exists, as the disk of a dead machine does."""
    volume = group.get("pvc", claim_name(pod))["spec"]["volumeName"]
    gone = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["machine-that-is-gone"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [gone]}]}}
    patch = json.dumps({"spec": {"nodeAffinity": affinity}})
    group.kubectl("patch", "pv", volume, f"--patch={patch}")
    group.delete_pod(pod)
    group.wait_for_words("Degraded", f"{pod}: Unschedulable")
    group.wait_for_condition("QuorumHealthy", "True", "MajorityReady")
