"""Wrong changes of a stored group with 30Gi of the storage class slow."""

from typing import Final

from api_server.objects import Object

WRONG_CHANGES: Final[dict[str, Object]] = {
    "a smaller volume": {"storage": {"size": "29Gi"}},
    "another storage class": {"storage": {"storageClassName": "fast"}},
    "no storage class": {"storage": {"storageClassName": None}},
    "the size of a segment": {"log": {"segmentSize": "512Mi"}},
    "another state machine": {"stateMachine": {"type": "Register"}},
    "a broker": {"broker": {}},
    "an archive for a group that exists": {
        "seed": {"persistentVolumeClaim": {"claimName": "archives"}}
    },
}
