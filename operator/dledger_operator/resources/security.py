"""What Kubernetes calls the restricted pod security standard, and a little more."""

from dledger_operator.views import Manifest

UID = 10001


def pod_security_context() -> Manifest:
    """Run as one ordinary user, which also owns the volume."""
    return {
        "runAsNonRoot": True,
        "runAsUser": UID,
        "runAsGroup": UID,
        "fsGroup": UID,
        # Changing the owner of every file of a large store at each start takes minutes.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security_context() -> Manifest:
    """Take away what a container does not need."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
