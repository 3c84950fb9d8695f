"""Audits of a group on the cluster."""

from typing import Any

from dledger_e2e.group import Group
from dledger_e2e.waiting import wait_for

AUDIT_S = 300.0


def audit(group: Group, name: str, **spec: Any) -> dict[str, Any]:
    """Create an audit, wait until it has ended, and return its status."""
    manifest = {
        "apiVersion": "dledger.io/v1alpha1",
        "kind": "DLedgerAudit",
        "metadata": {"name": name},
        "spec": {"groupRef": {"name": group.name}, **spec},
    }
    group.deployment.kubernetes.apply(manifest, f"--namespace={group.namespace}")

    def finished() -> dict[str, Any] | None:
        status: dict[str, Any] = group.get("dla", name).get("status", {})
        return status if status.get("phase") in ("Finished", "Failed") else None

    return wait_for(finished, f"audit {name} has ended", AUDIT_S)
