"""Labels, selectors and the owner reference that all children share."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Final

from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.spec.group import Group

PART_OF: Final = "dledger"
NODE_COMPONENT: Final = "node"
AUDIT_COMPONENT: Final = "audit"


def group_selector(group: str) -> dict[str, str]:
    """Return the immutable label that selects every member's pod."""
    return {names.GROUP_LABEL: group}


def stable_labels(group: Group) -> dict[str, str]:
    """Return the labels of pods and volume claims.

    They contain no version, so that an upgrade of the operator does not change the pod template.
    """
    return {
        "app.kubernetes.io/name": "dledger-node",
        "app.kubernetes.io/instance": group.name,
        names.COMPONENT_LABEL: NODE_COMPONENT,
        "app.kubernetes.io/part-of": PART_OF,
        names.MANAGED_BY_LABEL: names.FIELD_MANAGER,
        **group_selector(group.name),
    }


@cache
def operator_version() -> str:
    """Return the version of this package, which is read once."""
    return version("dledger-operator")


def child(group: Group, kind: str, api_version: str, name: str) -> Manifest:
    """Build the common part of a group's child: kind, name, labels and owner."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "namespace": group.namespace,
            "name": name,
            "labels": {
                **stable_labels(group),
                "app.kubernetes.io/version": operator_version(),
            },
            "ownerReferences": [owner(names.GROUP_KIND, group.name, group.uid)],
        },
    }


def owner(kind: str, name: str, uid: str) -> Manifest:
    """Build the owner reference, by which Kubernetes deletes the child with its owner.

    It does not block the owner's deletion, because that needs an extra permission on clusters that
    enforce owner references.
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
    """Add annotations to a manifest from `child`, and return the manifest."""
    if annotations:
        manifest["metadata"]["annotations"] = dict(annotations)
    return manifest


def pull_secrets(group: Group) -> Manifest:
    """Return the part of a pod's spec that names the Secrets for pulling its images."""
    secrets = [{"name": name} for name in group.pod_parts.image_pull_secrets]
    return {"imagePullSecrets": secrets} if secrets else {}
