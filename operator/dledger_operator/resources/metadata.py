"""Labels, selectors and the owner reference, the same on every child."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Final

from dledger_operator import names
from dledger_operator.spec.group import Group
from dledger_operator.views import Manifest

PART_OF: Final = "dledger"
NODE_COMPONENT: Final = "node"
AUDIT_COMPONENT: Final = "audit"


def group_selector(group: str) -> dict[str, str]:
    """Select every member's pod: few labels, and such as never change."""
    return {names.GROUP_LABEL: group}


def standing_labels(group: Group) -> dict[str, str]:
    """The labels of what outlives an upgrade of the operator: pods and volume claims.

    They carry no version, so that a new operator alone changes no pod.
    """
    return {
        "app.kubernetes.io/name": "dledger-node",
        "app.kubernetes.io/instance": group.name,
        names.COMPONENT_LABEL: NODE_COMPONENT,
        "app.kubernetes.io/part-of": PART_OF,
        names.MANAGED_BY_LABEL: names.FIELD_MANAGER,
        **group_selector(group.name),
    }


def operator_version() -> str:
    """This package's version."""
    return version("dledger-operator")


def child(group: Group, kind: str, api_version: str, name: str) -> Manifest:
    """Begin a child of a group: what it is, whose it is, how it is labelled."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "namespace": group.namespace,
            "name": name,
            "labels": {
                **standing_labels(group),
                "app.kubernetes.io/version": operator_version(),
            },
            "ownerReferences": [owner(names.GROUP_KIND, group.name, group.uid)],
        },
    }


def owner(kind: str, name: str, uid: str) -> Manifest:
    """Let Kubernetes delete the child with its owner.

    It does not block the owner's deletion: nothing waits for it, and blocking would need one more
    permission on clusters that check owner references.
    """
    return {
        "apiVersion": names.API_GROUP_VERSION,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def annotated(manifest: Manifest, annotations: Mapping[str, str]) -> Manifest:
    """Add annotations to a child that was just begun."""
    if annotations:
        manifest["metadata"]["annotations"] = dict(annotations)
    return manifest
