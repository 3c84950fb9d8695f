"""What the Job of an audit needs to keep what it has read: a volume, and arguments."""

import posixpath
from typing import Final

from dledger_operator import names
from dledger_operator.api_objects import Manifest
from dledger_operator.spec.audit_request import AuditRequest

FOLDER: Final = "/history"


def arguments(audit: AuditRequest) -> list[str]:
    """Return the arguments of `dledger-audit`; none if nothing is kept."""
    history = audit.history
    if history is None:
        return []
    folder = posixpath.join(FOLDER, history.path or audit.group_name)
    chosen = ["--history", history.uri or folder]
    return [*chosen, "--since-last"] if history.since_last else chosen


def volumes(audit: AuditRequest) -> list[Manifest]:
    """Return the volume of the claim, if there is one."""
    if audit.history is None or not audit.history.claim_name:
        return []
    claim = {"claimName": audit.history.claim_name}
    return [{"name": names.HISTORY_VOLUME, "persistentVolumeClaim": claim}]


def mounts(audit: AuditRequest) -> list[Manifest]:
    """Return the mount of that volume."""
    return [{"name": each["name"], "mountPath": FOLDER} for each in volumes(audit)]
