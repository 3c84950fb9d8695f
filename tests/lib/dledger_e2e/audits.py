"""Audits of a group on the cluster."""

from typing import Any

from dledger_e2e.group import Group
from dledger_e2e.one_off import order, status_of
from dledger_e2e.waiting import wait_for

KIND = "DLedgerAudit"
AUDIT_S = 300.0


def audit(group: Group, name: str, **spec: Any) -> dict[str, Any]:
    """Create an audit, wait until it has ended, and return its status."""
    order(group, KIND, name, **spec)

    def finished() -> dict[str, Any] | None:
        status = status_of(group, KIND, name)
        return status if status.get("phase") in ("Finished", "Failed") else None

    return wait_for(finished, f"audit {name} has ended", AUDIT_S)
