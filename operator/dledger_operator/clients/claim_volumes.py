"""Translates what a volume claim says about its volume: which one, its size, and its growth."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from lightkube.resources.core_v1 import PersistentVolumeClaim

from dledger_operator import names

_FAILED: Final = ("Infeasible", "Failed")
_CONDITIONS: Final = (
    "Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError",
)  # fmt: skip
_ERRORS: Final = ("ControllerResizeError", "NodeResizeError")
_MESSAGE_LENGTH_MAX: Final = 512


def volume_fields(claim: PersistentVolumeClaim) -> dict[str, Any]:
    """Return the fields of VolumeClaimView about the volume, by name."""
    spec, status = claim.spec, claim.status
    requests = (spec.resources.requests if spec and spec.resources else None) or {}
    conditions = [
        each
        for each in (status.conditions if status else None) or []
        if each.type in _CONDITIONS and each.status == "True"
    ]
    allocated = ((status.allocatedResourceStatuses if status else None) or {}).get("storage", "")
    words = [
        f"{each.type}: {each.message or each.reason or ''}".rstrip(": ") for each in conditions
    ]
    annotations = (claim.metadata.annotations if claim.metadata else None) or {}
    return {
        "volume": (spec.volumeName if spec else None) or "",
        "replaced_by": annotations.get(names.MEMBER_REPLACED_ANNOTATION, ""),
        "requested": str(requests.get("storage", "")),
        "capacity": str(((status.capacity if status else None) or {}).get("storage", "")),
        "resizing": "; ".join(filter(None, [allocated, *words]))[:_MESSAGE_LENGTH_MAX],
        "resize_failed": str(allocated).endswith(_FAILED)
        or any(each.type in _ERRORS for each in conditions),
        "grown_at": _grown_at(annotations),
    }


def _grown_at(annotations: Mapping[str, str]) -> datetime | None:
    """Return when the operator last grew a claim automatically; None if that is no valid time."""
    try:
        found = datetime.fromisoformat(annotations.get(names.GROWN_AT_ANNOTATION, ""))
    except ValueError:
        return None
    return found if found.tzinfo else None
