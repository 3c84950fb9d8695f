"""Events on a custom resource. A repeated Event raises a count instead of creating a new object."""

from datetime import datetime
from typing import Final

from dledger_operator import names
from dledger_operator.api_objects import Manifest

NORMAL: Final = "Normal"
WARNING: Final = "Warning"
NOTE_LENGTH_MAX: Final = 1024


def build(
    *,
    kind: str,
    namespace: str,
    name: str,
    uid: str,
    severity: str,
    reason: str,
    message: str,
    named_after: str,
    count: int,
    first: datetime,
    last: datetime,
) -> Manifest:
    """Build an Event about a custom resource; its name is derived from the object, the reason and
    `named_after`. An Event of the same name replaces it.
    """
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "name": names.event(name, uid, reason, named_after)},
        "involvedObject": {
            "apiVersion": names.API_GROUP_VERSION,
            "kind": kind,
            "namespace": namespace,
            "name": name,
            "uid": uid,
        },
        "type": severity,
        "reason": reason,
        "message": message[:NOTE_LENGTH_MAX],
        "count": count,
        "firstTimestamp": names.timestamp(first),
        "lastTimestamp": names.timestamp(last),
        "source": {"component": names.FIELD_MANAGER},
    }
