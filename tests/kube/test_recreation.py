"""A StatefulSet that is made again with larger claim templates, on a real API server.

The test plays the garbage collector, which carries out the policy Orphan.
"""

from typing import Any

import pytest

from api_server.client import ApiServer
from dledger_kube.cluster import API, Namespace, Object, parsed
from dledger_kube.objects import IMAGES, NOW
from dledger_operator.behaviors.children.reconcile import ReconcileResult, reconcile
from dledger_operator.clients.errors import ConflictError, UnavailableError
from dledger_operator.clients.kubernetes import KubeApi
from dledger_operator.resources import config_map

pytest_plugins = ["api_server.fixtures", "dledger_kube.fixtures"]

APPS = "/apis/apps/v1"
NOTE = "dledger.io/replicas-to-restore"


async def run(api: KubeApi, body: Object) -> ReconcileResult:
    """Reconcile a group that has had a leader."""
    outcome = await reconcile(api, body, IMAGES, now=NOW, led=True, voters=3)
    assert outcome.problem is None
    return outcome


async def founded(api: KubeApi, namespace: Namespace, replicas: int = 3) -> Object:
    """Make a group with pods, whose StatefulSet has been scaled."""
    body = namespace.make_group()
    await reconcile(api, body, IMAGES, now=NOW, led=False, voters=3)
    await run(api, body)
    namespace.patch("statefulsets", "flights", {"spec": {"replicas": replicas}}, APPS)
    for ordinal in range(replicas):
        namespace.make_pod(parsed(body), ordinal)
    for ordinal in range(7):  # those of removed members are retained
        make_claim(namespace, ordinal, identity=body["metadata"]["uid"])
    return body


def make_claim(namespace: Namespace, ordinal: int, identity: str) -> None:
    sent = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": f"data-flights-{ordinal}",
            "labels": {"dledger.io/group": "flights"},
            "annotations": {
                "dledger.io/first-voters": "3",
                "dledger.io/group-identity": identity,
            },
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "30Gi"}},
        },
    }
    namespace.server.request("POST", namespace.path("persistentvolumeclaims"), sent)


def grown(namespace: Namespace, **spec: Any) -> Object:
    change = {"spec": {"storage": {"size": "40Gi"}, **spec}}
    return namespace.patch("dledgergroups", "flights", change, API)


def stateful_set(namespace: Namespace) -> Object | None:
    found = namespace.get("statefulsets", group=APPS)["items"]
    return found[0] if found else None


def template_size(made: Object) -> str:
    (template,) = made["spec"]["volumeClaimTemplates"]
    return str(template["spec"]["resources"]["requests"]["storage"])


def note(namespace: Namespace) -> str | None:
    metadata = namespace.get("configmaps", "flights-settings")["metadata"]
    found: str | None = metadata.get("annotations", {}).get(NOTE)
    return found


def collect(namespace: Namespace) -> None:
    """Orphan the pods and let the StatefulSet go, as the garbage collector does."""
    for each in namespace.get("pods")["items"]:
        name = each["metadata"]["name"]
        namespace.patch("pods", name, {"metadata": {"ownerReferences": None}})
    namespace.patch("statefulsets", "flights", {"metadata": {"finalizers": None}}, APPS)


async def test_a_stateful_set_is_made_again_with_the_new_size_and_its_pods_stay(
    api: KubeApi, namespace: Namespace
) -> None:
    await founded(api, namespace, replicas=5)
    before = stateful_set(namespace)
    assert before is not None
    uids = {each["metadata"]["uid"] for each in namespace.get("pods")["items"]}
    body = grown(namespace)

    await run(api, body)
    leaving = stateful_set(namespace)
    assert leaving is not None
    assert leaving["metadata"]["finalizers"] == ["orphan"]
    assert note(namespace) == "5"
    await run(api, body)
    assert stateful_set(namespace) == leaving, "one that is leaving is left alone"
    collect(namespace)
    assert stateful_set(namespace) is None
    await run(api, body)

    after = stateful_set(namespace)
    assert after is not None
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert (template_size(after), after["spec"]["replicas"]) == ("40Gi", 5)
    assert after["spec"]["template"] == before["spec"]["template"]
    assert {each["metadata"]["uid"] for each in namespace.get("pods")["items"]} == uids
    assert len(namespace.get("persistentvolumeclaims")["items"]) == 7
    await run(api, body)
    assert note(namespace) is None
    again = stateful_set(namespace)
    assert again is not None
    assert again["metadata"]["uid"] == after["metadata"]["uid"], "once is enough"


@pytest.mark.parametrize("step", ["note_replicas", "orphan_stateful_set", "apply"])
async def test_an_operator_that_dies_at_any_step_goes_on_where_it_was(
    api_server: ApiServer,
    api: KubeApi,
    namespace: Namespace,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    await founded(api, namespace, replicas=5)
    body = grown(namespace)
    if step == "apply":  # of the StatefulSet that is gone
        await run(api, body)
        collect(namespace)

    async def die(*_: object) -> None:
        raise UnavailableError("the operator dies here")

    with monkeypatch.context() as patched:
        patched.setattr(api, step, die)
        with pytest.raises(UnavailableError):
            await run(api, body)
    await run(api, body)
    if (made := stateful_set(namespace)) and "deletionTimestamp" in made["metadata"]:
        collect(namespace)
    await run(api, body)

    after = stateful_set(namespace)
    assert after is not None
    assert (template_size(after), after["spec"]["replicas"]) == ("40Gi", 5)


async def test_a_stateful_set_stays_while_its_pod_template_waits_for_an_approval(
    api: KubeApi, namespace: Namespace
) -> None:
    """A StatefulSet that is made again gets the template of the spec."""
    await founded(api, namespace)
    body = grown(namespace, updatePolicy="OnApproval", log={"flushDiskType": "AsyncFlush"})

    outcome = await run(api, body)

    made = stateful_set(namespace)
    assert outcome.held is not None
    assert made is not None
    assert "deletionTimestamp" not in made["metadata"]
    assert template_size(made) == "30Gi"


async def test_a_stateful_set_of_a_group_that_hibernates_stays_until_it_wakes(
    api: KubeApi, namespace: Namespace
) -> None:
    await founded(api, namespace, replicas=0)
    body = grown(namespace, hibernate=True)
    await run(api, body)

    made = stateful_set(namespace)
    assert made is not None
    assert "deletionTimestamp" not in made["metadata"]
    assert (template_size(made), note(namespace)) == ("30Gi", None)
    namespace.patch("statefulsets", "flights", {"spec": {"replicas": 3}}, APPS)
    await run(api, body)
    assert note(namespace) == "3"


@pytest.mark.parametrize("request_name", ["orphan_stateful_set", "delete_stateful_set"])
async def test_a_stateful_set_that_was_scaled_meanwhile_is_not_deleted(
    api: KubeApi, namespace: Namespace, request_name: str
) -> None:
    await founded(api, namespace)
    seen = await api.stateful_set(namespace.name, "flights")
    assert seen is not None
    namespace.patch("statefulsets", "flights", {"spec": {"replicas": 5}}, APPS)

    with pytest.raises(ConflictError):
        await getattr(api, request_name)(seen)


async def test_a_recorded_founding_is_read_back_and_outlives_an_apply(
    api: KubeApi, namespace: Namespace
) -> None:
    await founded(api, namespace)
    before = await api.settings(namespace.name, "flights-settings")
    assert before is not None
    data = {**before.data, config_map.STATE_KEY: "new"}

    await api.record_founding(namespace.name, "flights-settings", before, data, [7, 5])
    recorded = await api.settings(namespace.name, "flights-settings")
    await run(api, grown(namespace))
    applied = await api.settings(namespace.name, "flights-settings")

    assert recorded is not None
    assert (recorded.superseded, recorded.data[config_map.STATE_KEY]) == ({5, 7}, "new")
    assert recorded.resource_version != before.resource_version
    assert applied is not None
    assert applied.superseded == {5, 7}
    with pytest.raises(ConflictError):
        await api.record_founding(namespace.name, "flights-settings", before, data, [7, 5])
