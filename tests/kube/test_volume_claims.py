"""Volume claims on a real API server: who owns them, and when one is deleted."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api_server.client import ApiServer
from api_server.objects import Object
from dledger_kube.cluster import API, Namespace, parsed
from dledger_kube.objects import IMAGES, NOW
from dledger_kube.operated import Operated, operated
from dledger_operator.behaviors.children.reconcile import reconcile
from dledger_operator.clients.errors import ConflictError
from dledger_operator.clients.kubernetes import KubeApi

pytest_plugins = ["api_server.fixtures", "dledger_kube.fixtures"]

APPS = "/apis/apps/v1"


@pytest.fixture
async def cluster(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Operated]:
    async with operated(api_server, tmp_path, members=3) as parts:
        yield Operated(*parts)


def make_claim(namespace: Namespace, ordinal: int, name: str = "") -> Object:
    """Create a member's volume claim, as the StatefulSet controller does."""
    sent = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name or f"data-flights-{ordinal}",
            "labels": {"dledger.io/group": "flights"},
            # As the kubelet's controller does while a pod uses the claim.
            "finalizers": ["kubernetes.io/pvc-protection"],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    made: Object = namespace.server.request("POST", namespace.path("persistentvolumeclaims"), sent)
    return made


def owners(namespace: Namespace, ordinal: int) -> list[str]:
    claim = namespace.get("persistentvolumeclaims", f"data-flights-{ordinal}")
    return [each["uid"] for each in claim["metadata"].get("ownerReferences", [])]


async def test_the_owner_of_the_volume_claims_follows_the_spec(
    api: KubeApi, namespace: Namespace
) -> None:
    body = namespace.make_group(
        storage={"size": "30Gi", "retain": {"whenDeleted": "Delete", "whenScaled": "Delete"}}
    )
    uid = body["metadata"]["uid"]
    make_claim(namespace, 0)

    await reconcile(api, body, IMAGES, now=NOW, led=False, voters=3)

    assert owners(namespace, 0) == [uid]
    policy = namespace.get("statefulsets", "flights", APPS)["spec"]
    assert policy["persistentVolumeClaimRetentionPolicy"] == {
        "whenDeleted": "Retain", "whenScaled": "Retain",
    }  # fmt: skip
    body["spec"]["storage"]["retain"]["whenDeleted"] = "Retain"
    await reconcile(api, body, IMAGES, now=NOW, led=False, voters=3)
    assert owners(namespace, 0) == []


async def test_an_older_operators_stateful_set_is_changed_to_retain(
    api: KubeApi, namespace: Namespace
) -> None:
    body = namespace.make_group()
    await reconcile(api, body, IMAGES, now=NOW, led=False, voters=3)
    before = {"whenDeleted": "Delete", "whenScaled": "Delete"}
    change = {"spec": {"persistentVolumeClaimRetentionPolicy": before}}
    namespace.patch("statefulsets", "flights", change, APPS)

    await reconcile(api, body, IMAGES, now=NOW, led=True, voters=3)

    policy = namespace.get("statefulsets", "flights", APPS)["spec"]
    assert set(policy["persistentVolumeClaimRetentionPolicy"].values()) == {"Retain"}


async def test_a_claim_that_changed_since_it_was_read_is_not_deleted(
    api: KubeApi, namespace: Namespace
) -> None:
    make_claim(namespace, 4)
    make_claim(namespace, 5, name="their-data-5")
    (seen,) = await api.volume_claims(namespace.name, "flights")
    namespace.patch(
        "persistentvolumeclaims", "data-flights-4", {"metadata": {"annotations": {"a": "b"}}}
    )

    with pytest.raises(ConflictError):
        await api.delete_volume_claim(seen)
    (fresh,) = await api.volume_claims(namespace.name, "flights")
    assert not fresh.leaving
    await api.delete_volume_claim(fresh)

    (left,) = await api.volume_claims(namespace.name, "flights")
    assert left.leaving


async def test_a_claim_that_is_deleted_under_a_running_member_degrades_the_group(
    cluster: Operated,
) -> None:
    namespace = cluster.namespace
    body = namespace.make_group()
    await cluster.until(
        "the StatefulSet exists",
        lambda: len(namespace.get("statefulsets", group=APPS)["items"]) == 1,
    )
    for ordinal, node in enumerate(cluster.nodes):
        make_claim(namespace, ordinal)
        namespace.make_pod(parsed(body), ordinal, node.ip)
        await node.say(7, "n1")
    await cluster.until("it is ready", lambda: cluster.status().get("membersReady") == "3/3")

    path = namespace.path("persistentvolumeclaims", "data-flights-2")
    namespace.server.request("DELETE", path)

    await cluster.until(
        "the group is degraded",
        lambda: cluster.condition("Degraded")["reason"] == "VolumeTerminating",
    )
    assert "data-flights-2" in cluster.condition("Degraded")["message"]
    namespace.server.request("DELETE", namespace.path("dledgergroups", "flights", API))
