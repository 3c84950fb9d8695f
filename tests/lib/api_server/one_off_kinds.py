"""The expected behavior of the API server for the kinds that are carried out once: their defaults,
results, columns, and the specs that it refuses.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from api_server.objects import Object, audit, replace, switchover


@dataclass(frozen=True, slots=True, kw_only=True)
class OneOffKind:
    """A kind whose objects are carried out once."""

    make: Callable[..., Object]
    """Returns an object with the given fields of the spec."""
    short_name: str
    example: str
    """The name of an example with the defaults; empty if there is none."""
    defaults: Object
    status: Object
    """A complete status of an object that has ended."""
    columns: Mapping[str, str]
    """The columns of `kubectl get` between name and age, for an object with that status."""
    refused: Mapping[str, tuple[Object, str]]
    """Wrong specs and the API server's answers, by what is wrong with each."""
    changes: tuple[Object, ...]
    """Changes of the spec of an object with the defaults."""
    immutable: str
    """The answer to each of these changes."""


AUDIT: Final = OneOffKind(
    make=audit,
    short_name="dla",
    example="",
    defaults={
        "groupRef": {"name": "flights"},
        "level": "Full",
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
        "readRate": "50Mi",
        "ttlAfterFinished": "24h",
    },
    status={
        "observedGeneration": 1,
        "phase": "Finished",
        "job": "flights-1-audit",
        "verdict": "Damaged",
        "entries": 336776,
        "bytes": 98304000,
        "agreedIndex": 336775,
        "findings": 1,
        "firstFindings": [
            {
                "check": "bad_body_crc",
                "severity": "critical",
                "member": "n2",
                "segment": "00000000000000000000",
                "firstIndex": 17,
                "lastIndex": 17,
                "detail": "body of entry 17 at byte 6018",
            }
        ],
        "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:01:00Z",
        "conditions": [
            {
                "type": "Complete",
                "status": "True",
                "reason": "Damaged",
                "message": "n2 holds a damaged entry",
                "lastTransitionTime": "2026-01-01T00:01:00Z",
                "observedGeneration": 1,
            }
        ],
    },
    columns={
        "GROUP": "flights",
        "PHASE": "Finished",
        "VERDICT": "Damaged",
        "ENTRIES": "336776",
        "FINDINGS": "1",
    },
    refused={
        "a time too short to read the result": (
            {"ttlAfterFinished": "59s"},
            "at least 1m, so that the operator can read the result, and at most 720h, but is 59s",
        ),
        "a time too long": ({"ttlAfterFinished": "721h"}, "but is 721h"),
        "a request above its limit": (
            {"resources": {"requests": {"cpu": "1500m"}, "limits": {"cpu": 1}}},
            "a request must not exceed the limit for the same resource",
        ),
        "an unknown level": ({"level": "Index"}, 'supported values: "Full"'),
        "a rate too low": (
            {"readRate": "1000Ki"},
            "readRate must be a number of bytes between 1Mi and 100Gi a second",
        ),
        "a rate in words": ({"readRate": "slowly"}, "or without a unit, but is slowly"),
        "executors without a number": ({"executors": {}}, "spec.executors.max: Required value"),
        "no executor": ({"executors": {"max": 0}}, "greater than or equal to 1"),
        "a thousand executors": ({"executors": {"max": 1000}}, "less than or equal to 100"),
        "executors without a moment to start": (
            {"executors": {"max": 2, "startWithin": "9s"}},
            "startWithin must be a whole number of s, m or h, from 10s to 1h, but is 9s",
        ),
        "executors with too little memory": (
            {"executors": {"max": 2, "resources": {"limits": {"memory": "1Gi"}}}},
            "an executor needs a memory limit of at least 1150Mi",
        ),
        "executors that request too little memory": (
            {"executors": {"max": 2, "resources": {"requests": {"memory": "1Gi"}}}},
            "the memory request of an executor without a limit must be at least 1150Mi",
        ),
        "code of a user's own in executors": (
            {"executors": {"max": 2}, "decoder": "os:system"},
            "decoder must not be module:function with executors",
        ),
        "no group": ({"groupRef": {}}, "spec.groupRef.name: Required value"),
        "an unknown field": ({"group": "flights"}, 'unknown field "spec.group"'),
    },
    changes=(
        {"groupRef": {"name": "trains"}},
        {"ttlAfterFinished": "1h"},
        {"resources": {"requests": {"cpu": "2"}}},
    ),
    immutable="the spec of an audit cannot change; create another",
)

SWITCHOVER: Final = OneOffKind(
    make=switchover,
    short_name="dls",
    example="flights-switchover.yaml",
    defaults={
        "groupRef": {"name": "flights"},
        "target": "n2",
        "maxLagEntries": 1000,
        "timeout": "30s",
        "ttlAfterFinished": "24h",
    },
    status={
        "observedGeneration": 1,
        "phase": "Succeeded",
        "from": "n1",
        "term": 8,
        "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:00:01Z",
        "checkSeconds": 0.021,
        "transferSeconds": 0.012,
        "serviceSeconds": 0.105,
        "conditions": [
            {
                "type": "Complete",
                "status": "True",
                "reason": "SwitchedOver",
                "message": "the leadership moved from n1 to n2",
                "lastTransitionTime": "2026-01-01T00:00:01Z",
                "observedGeneration": 1,
            }
        ],
    },
    columns={
        "GROUP": "flights",
        "TARGET": "n2",
        "PHASE": "Succeeded",
        "REASON": "SwitchedOver",
        "FROM": "n1",
    },
    refused={
        "no group": ({"groupRef": {}}, "spec.groupRef.name: Required value"),
        "no target": ({"target": None}, "spec.target: Required value"),
        "a target that no group has": ({"target": "n7"}, "n7 is not the ID of a member"),
        "a lag that the leader refuses": (
            {"maxLagEntries": 1001},
            "spec.maxLagEntries in body should be less than or equal to 1000",
        ),
        "a negative lag": (
            {"maxLagEntries": -1},
            "spec.maxLagEntries in body should be greater than or equal to 0",
        ),
        "too little time": (
            {"timeout": "4s"},
            "timeout must be a whole number of s or m between 5s and 10m, but is 4s",
        ),
        "too much time": (
            {"timeout": "601s"},
            "timeout must be a whole number of s or m between 5s and 10m, but is 601s",
        ),
        "a time too short to read the result": (
            {"ttlAfterFinished": "59s"},
            "at least 1m, so that its result can be read, and at most 720h, but is 59s",
        ),
        "a result kept too long": ({"ttlAfterFinished": "721h"}, "but is 721h"),
        "an unknown field": ({"to": "n2"}, 'unknown field "spec.to"'),
    },
    changes=({"target": "n1"}, {"timeout": "1m"}, {"maxLagEntries": 5}),
    immutable="the spec of a switchover cannot change; create another",
)

REPLACEMENT: Final = OneOffKind(
    make=replace,
    short_name="dlr",
    example="flights-replace.yaml",
    defaults={
        "groupRef": {"name": "flights"},
        "member": "n2",
        "timeout": "1h",
        "ttlAfterFinished": "24h",
    },
    status={
        "observedGeneration": 1,
        "phase": "Succeeded",
        "claimUid": "6a2f41a3-c54c-fce8-32d2-0324e1c32e22",
        "volume": "pvc-6a2f41a3",
        "newVolume": "pvc-81b1b05e",
        "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:01:30Z",
        "checkSeconds": 0.021,
        "volumeSeconds": 4.2,
        "joinSeconds": 85.1,
        "conditions": [
            {
                "type": "Complete",
                "status": "True",
                "reason": "Replaced",
                "message": "n2 has the new volume pvc-81b1b05e and votes again",
                "lastTransitionTime": "2026-01-01T00:01:30Z",
                "observedGeneration": 1,
            }
        ],
    },
    columns={"GROUP": "flights", "MEMBER": "n2", "PHASE": "Succeeded", "REASON": "Replaced"},
    refused={
        "no group": ({"groupRef": {}}, "spec.groupRef.name: Required value"),
        "no member": ({"member": None}, "spec.member: Required value"),
        "a member that no group has": (
            {"member": "n7"},
            "n7 is not the ID of a member: use n0 to n6",
        ),
        "too little time": ({"timeout": "59s"}, "s, m or h between 1m and 24h, but is 59s"),
        "too much time": ({"timeout": "25h"}, "s, m or h between 1m and 24h, but is 25h"),
        "a time too short to read the result": (
            {"ttlAfterFinished": "59s"},
            "at least 1m, so that its result can be read, and at most 720h, but is 59s",
        ),
        "an unknown field": ({"force": True}, 'unknown field "spec.force"'),
    },
    changes=({"member": "n1"}, {"timeout": "2h"}),
    immutable="the spec of a replacement cannot change; create another",
)

KINDS: Final[Mapping[str, OneOffKind]] = {
    "audit": AUDIT,
    "switchover": SWITCHOVER,
    "replacement": REPLACEMENT,
}
