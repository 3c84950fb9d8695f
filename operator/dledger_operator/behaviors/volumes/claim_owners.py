"""The owners of the volume claims of a group. Pure.

The StatefulSet always retains its claims, so that neither `kubectl delete sts` nor `kubectl scale
sts` removes the log of a group in use. If `storage.retain.whenDeleted` is `Delete`, the group owns
the claims, and Kubernetes deletes them with the group. The claim of a removed member is deleted by
scaling, once the removal is committed.
"""

from collections.abc import Mapping
from typing import Any

from dledger_operator import names
from dledger_operator.api_objects import VolumeClaimView
from dledger_operator.spec.group import Group

DELETE = "Delete"


def owner_references(claim: VolumeClaimView, group: Group) -> list[Mapping[str, Any]] | None:
    """Return the owner references that a claim should have; None if it has them.

    Only the group's own reference is added or removed.
    """
    others = [each for each in claim.owner_references if each.get("uid") != group.uid]
    owned = len(others) < len(claim.owner_references)
    if owned == (group.storage.when_deleted == DELETE) or claim.leaving:
        return None
    return others if owned else [*others, _owner(group)]


def _owner(group: Group) -> Mapping[str, Any]:
    """Return a reference to the group, not as controller: that is reserved for the StatefulSet."""
    return {
        "apiVersion": names.API_GROUP_VERSION,
        "kind": names.GROUP_KIND,
        "name": group.name,
        "uid": group.uid,
        "blockOwnerDeletion": False,
    }
