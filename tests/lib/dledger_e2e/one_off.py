"""Objects that are carried out once, created as a user would create them."""

from typing import Any

from dledger_e2e.group import Group
from dledger_e2e.waiting import wait_for

ENDED = ("Succeeded", "Failed")
ENDS_S = 120.0


def carry_out(group: Group, kind: str, name: str, **spec: str) -> dict[str, Any]:
    """Create an object about a group, wait until it has ended, and return its status."""
    manifest = {
        "apiVersion": "dledger.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"groupRef": {"name": group.name}, **spec},
    }
    group.deployment.kubernetes.apply(manifest, f"--namespace={group.namespace}")

    def ended() -> dict[str, Any] | None:
        status: dict[str, Any] = group.get(kind.lower(), name).get("status", {})
        return status if status.get("phase") in ENDED else None

    return wait_for(ended, f"{kind} {name} ends", ENDS_S)
