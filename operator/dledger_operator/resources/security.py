"""Security contexts: Kubernetes' restricted pod security standard and a read-only root."""

from dledger_operator.api_objects import Manifest

UID = 10001


def pod_security_context() -> Manifest:
    """Run as an unprivileged user, which also owns the volume."""
    return {
        "runAsNonRoot": True,
        "runAsUser": UID,
        "runAsGroup": UID,
        "fsGroup": UID,
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
