"""Invalid DLedgerGroups, and the reasons for which a real API server refuses them."""

import re

import pytest

from api_server.client import ApiServer, RefusedError
from api_server.objects import Object, check, check_change, group, stored
from dledger_kube.refused_pods import REFUSED_PODS
from dledger_kube.refused_settings import IMMUTABLE_STATE, REFUSED_SETTINGS
from tools import crd_reference

pytest_plugins = ["api_server.fixtures"]

# Spec fields in addition to 30Gi of storage, and the server's answer.
REFUSED: dict[str, tuple[Object, str]] = {
    "an even number of members": (
        {"replicas": 4},
        "replicas must be odd: an even number tolerates no more failures than the next lower odd",
    ),
    "two preferred leaders": (
        {"preferredLeader": {"member": "n0", "zone": "a"}},
        "preferredLeader must have exactly one of member, zone and nodeLabels",
    ),
    "a preference for nobody": (
        {"preferredLeader": {"stableFor": "5s"}},
        "preferredLeader must have exactly one of member, zone and nodeLabels",
    ),
    "a preferred leader that the group lacks": (
        {"preferredLeader": {"member": "n3"}},
        "preferredLeader.member must be below replicas, n0 to n2 of three",
    ),
    "a preferred leader that no group has": (
        {"preferredLeader": {"member": "n7"}},
        "spec.preferredLeader.member in body should match",
    ),
    "a zone that no label can have": (
        {"preferredLeader": {"zone": "a/b"}},
        "spec.preferredLeader.zone in body should match",
    ),
    "a preference by no label": (
        {"preferredLeader": {"nodeLabels": {}}},
        "spec.preferredLeader.nodeLabels in body should have at least 1 properties",
    ),
    "a preferred leader that waits for no time": (
        {"preferredLeader": {"member": "n0", "stableFor": "0s"}},
        "stableFor must be between 1s and 24h, but is 0s",
    ),
    "a preferred leader that waits for days": (
        {"preferredLeader": {"member": "n0", "stableFor": "25h"}},
        "stableFor must be between 1s and 24h, but is 25h",
    ),
    "a volume for less than three segments": (
        {"storage": {"size": "2Gi"}},
        "storage.size is 2Gi and log.segmentSize is 1Gi: a volume must hold at least three",
    ),
    "growth to less than the size": (
        {"storage": {"size": "30Gi", "autoGrow": {"step": "1Gi", "maxSize": "29Gi"}}},
        "autoGrow.maxSize is 29Gi and storage.size is 30Gi: maxSize must be at least the",
    ),
    "growth by nothing": (
        {"storage": {"size": "30Gi", "autoGrow": {"step": "0", "maxSize": "40Gi"}}},
        "spec.storage.autoGrow.step in body should match",
    ),
    "growth without a bound": (
        {"storage": {"size": "30Gi", "autoGrow": {"step": "1Gi"}}},
        "spec.storage.autoGrow.maxSize: Required value",
    ),
    "a cool-down of more than a year": (
        {
            "storage": {
                "size": "30Gi",
                "autoGrow": {
                    "step": "1Gi",
                    "maxSize": "40Gi",
                    "coolDown": "8785h",
                },
            }
        },
        "coolDown must not exceed 8784h, but is 8785h",
    ),
    "a segment of no whole mebibytes": (
        {"log": {"segmentSize": "2M"}},
        "segmentSize must be a multiple of 1Mi, but is 2M",
    ),
    "a segment that Java cannot count": (
        {"log": {"segmentSize": "2Gi"}},
        "segmentSize must be between 1Mi and 2047Mi, but is 2Gi: DLedger addresses the bytes",
    ),
    "a heartbeat too fast": (
        {"election": {"heartbeatInterval": "19ms"}},
        "heartbeatInterval must be between 20ms and 60s, but is 19ms",
    ),
    "an election timeout too long": (
        {"election": {"timeout": "601s"}},
        "timeout must be between 50ms and 600s, but is 601s",
    ),
    "an election timeout shorter than two heartbeats": (
        {"election": {"heartbeatInterval": "600ms"}},
        "timeout is 1s and heartbeatInterval is 600ms: the timeout must be at least twice the",
    ),
    "an update window that never opens": (
        {"updatePolicy": "Window", "updateWindow": {"from": "02:00", "to": "02:00"}},
        "from and to are both 02:00: the window would never open",
    ),
    "an update window without a day": (
        {"updateWindow": {"days": [], "from": "02:00", "to": "04:00"}},
        "spec.updateWindow.days in body should have at least 1 items",
    ),
    "an update window at no time of day": (
        {"updateWindow": {"from": "24:00", "to": "04:00"}},
        "spec.updateWindow.from in body should match",
    ),
    "a window policy without a window": (
        {"updatePolicy": "Window"},
        "updateWindow is missing: with updatePolicy Window pods are replaced only while it is open",
    ),
    "one value for both roles": (
        {"roles": {"master": "node", "slave": "node"}},
        "master and slave are both node: the values must differ, or both Services would select",
    ),
    "the value for no role": (
        {"roles": {"slave": "none"}},
        "the value none is reserved for pods that no Service selects",
    ),
    "a role label of Kubernetes": (
        {"roles": {"label": "app.kubernetes.io/name"}},
        "app.kubernetes.io/name is a reserved label: use dledger.io/role or a key outside",
    ),
    "a role label of the operator": (
        {"roles": {"label": "dledger.io/group"}},
        "dledger.io/group is a reserved label",
    ),
    "a role label of the StatefulSet controller": (
        {"roles": {"label": "controller-revision-hash"}},
        "controller-revision-hash is a reserved label",
    ),
    "pods born with a role": (
        {"podLabels": {"dledger.io/role": "master"}},
        "podLabels must not contain dledger.io/role, controller-revision-hash or labels under",
    ),
    "pods born with a role of another name": (
        {"roles": {"label": "duty"}, "podLabels": {"duty": "master"}},
        "podLabels must not contain duty, controller-revision-hash or labels under",
    ),
    "an annotation of the operator": (
        {"podAnnotations": {"dledger.io/term": "9"}},
        "annotations under dledger.io are reserved for the operator",
    ),
    "a request above its limit": (
        {"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}},
        "a request must not exceed the limit for the same resource",
    ),
    "too little memory to run": (
        {"resources": {"limits": {"memory": "10Mi"}}},
        "a member cannot run with a memory limit below 64Mi; the default is 512Mi",
    ),
    "a time without a unit": ({"election": {"timeout": "1"}}, "spec.election.timeout in body"),
    "a word for a size": ({"storage": {"size": "large"}}, "spec.storage.size in body"),
    "no size at all": ({"storage": {}}, "spec.storage.size: Required value"),
    "an unknown field": ({"replica": 3}, 'unknown field "spec.replica"'),
    "an unknown flush type": (
        {"log": {"flushDiskType": "Sync"}},
        'supported values: "SyncFlush", "AsyncFlush"',
    ),
}

# Changes of a stored group, and the server's answer.
UNCHANGEABLE: dict[str, tuple[Object, str]] = {
    "a smaller volume": (
        {"storage": {"size": "29Gi"}},
        "storage.size cannot shrink from 30Gi to 29Gi: a volume can only grow",
    ),
    "another storage class": (
        {"storage": {"storageClassName": "fast"}},
        "spec.storage.storageClassName: Forbidden: storageClassName cannot change",
    ),
    "no storage class": (
        {"storage": {"storageClassName": None}},
        "spec.storage.storageClassName: Forbidden: storageClassName cannot change",
    ),
    "the size of a segment": (
        {"log": {"segmentSize": "512Mi"}},
        "segmentSize cannot change from 1Gi to 512Mi: the names of files on disk depend on it",
    ),
}

NAMES_REFUSED = {
    "g" * 41: "the name must not exceed 40 characters",
    "1st": "the name becomes part of Service names: use only lower-case letters",
}


@pytest.mark.parametrize(("spec", "answer"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_spec_is_refused_with_the_reason(
    api_server: ApiServer, spec: Object, answer: str
) -> None:
    with pytest.raises(RefusedError, match=re.escape(answer)):
        check(api_server, group(**spec))


@pytest.mark.parametrize(("name", "answer"), NAMES_REFUSED.items())
def test_an_invalid_child_name_is_refused(api_server: ApiServer, name: str, answer: str) -> None:
    with pytest.raises(RefusedError, match=re.escape(answer)):
        check(api_server, group(name))


@pytest.mark.parametrize(("change", "answer"), UNCHANGEABLE.values(), ids=UNCHANGEABLE)
def test_a_change_of_an_immutable_field_is_refused_with_the_reason(
    api_server: ApiServer, change: Object, answer: str
) -> None:
    sent = group(storage={"size": "30Gi", "storageClassName": "slow"})

    with (
        stored(api_server, sent) as made,
        pytest.raises(RefusedError, match=re.escape(answer)),
    ):
        check_change(api_server, made, {"spec": change})


@pytest.mark.parametrize(
    "change",
    [
        {"storage": {"size": "31Gi", "retain": {"whenDeleted": "Delete"}}},
        {"log": {"segmentSize": "1024Mi"}},
        {"log": {"flushDiskType": "AsyncFlush"}},
        {"election": {"heartbeatInterval": "100ms", "timeout": "500ms"}},
        {"paused": True},
    ],
    ids=["a larger volume", "the same size in other units", "the flush type", "times", "a pause"],
)
def test_a_change_of_a_mutable_field_is_accepted(api_server: ApiServer, change: Object) -> None:
    with stored(api_server, group()) as made:
        changed = check_change(api_server, made, {"spec": change})["spec"]

    assert changed != made["spec"]


def test_every_rule_of_the_schema_is_violated_by_one_case() -> None:
    answers = [
        *(answer for _, answer in REFUSED.values()),
        *(answer for _, answer in UNCHANGEABLE.values()),
        *NAMES_REFUSED.values(),
        *(answer for _, answer in REFUSED_SETTINGS.values()),
        IMMUTABLE_STATE,
        *(answer for _, answer in REFUSED_PODS.values()),
    ]
    crd = next(
        crd
        for crd in crd_reference.load(crd_reference.CRDS)
        if crd["spec"]["names"]["kind"] == "DLedgerGroup"
    )
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    untested = [
        (where, text)
        for where, text in crd_reference.rules(schema, "")
        if not any(_tells(answer, text) for answer in answers)
    ]

    assert not untested


def _tells(answer: str, text: str) -> bool:
    """Return whether an expected answer quotes the beginning of a rule's message."""
    beginning = text[:30]
    return re.search(re.escape(beginning).replace(r"\.\.\.", ".+"), answer) is not None
