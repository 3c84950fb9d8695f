"""Security contexts: Kubernetes' restricted pod security standard and a read-only root."""

from dledger_operator.api_objects import Manifest

UID = 10001


def pod_security_context(*, fixed_user: bool) -> Manifest:
    """Run as an unprivileged user, which also owns the volume.

    Without a fixed user the cluster must choose user and group, as OpenShift does for each
    namespace; the kubelet still refuses to run the pod as root.
    """
    user = {"runAsUser": UID, "runAsGroup": UID, "fsGroup": UID} if fixed_user else {}
    return {
        "runAsNonRoot": True,
        **user,
        # Changing the owner of every file of a large store takes minutes at each start.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security_context() -> Manifest:
    """Drop all capabilities and privilege escalation; make the root file system read-only."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
