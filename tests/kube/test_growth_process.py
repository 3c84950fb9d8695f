"""Growing volumes on a real API server, whose admission lets only some storage classes grow.

The test plays the controllers that bind claims and grow volumes: the local cluster has no class
that can grow.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from api_server.client import ApiServer
from api_server.objects import Object
from dledger_kube.cluster import API, MERGE_PATCH, Namespace, parsed
from dledger_kube.objects import IMAGES, NOW
from dledger_kube.operated import Operated, operated
from dledger_operator.behaviors.children.reconcile import ReconcileResult, reconcile
from dledger_operator.clients.errors import ConflictError
from dledger_operator.clients.kubernetes import KubeApi

pytest_plugins = ["api_server.fixtures", "dledger_kube.fixtures"]

APPS = "/apis/apps/v1"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


@contextmanager
def storage_class(namespace: Namespace, grows: bool) -> Iterator[str]:
    name = f"{namespace.name}-{'grows' if grows else 'fixed'}"
    made = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "example.com/played",
        "allowVolumeExpansion": grows,
    }
    namespace.server.request("POST", CLASSES, made)
    try:
        yield name
    finally:
        namespace.server.request("DELETE", f"{CLASSES}/{name}")


def make_claim(namespace: Namespace, ordinal: int, storage_class_name: str) -> None:
    """Create a member's volume claim and bind it, as controllers do."""
    sent = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": f"data-flights-{ordinal}",
            "labels": {"dledger.io/group": "flights"},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class_name,
            "volumeName": f"{namespace.name}-{ordinal}",
            "resources": {"requests": {"storage": "30Gi"}},
        },
    }
    namespace.server.request("POST", namespace.path("persistentvolumeclaims"), sent)
    set_capacity(namespace, ordinal, "30Gi")


def set_capacity(namespace: Namespace, ordinal: int, size: str) -> None:
    path = namespace.path("persistentvolumeclaims", f"data-flights-{ordinal}/status")
    status = {"phase": "Bound", "capacity": {"storage": size}}
    namespace.server.request("PATCH", path, {"status": status}, content_type=MERGE_PATCH)


def requested(namespace: Namespace) -> list[str]:
    claims = namespace.get("persistentvolumeclaims")["items"]
    return [each["spec"]["resources"]["requests"]["storage"] for each in claims]


@pytest.fixture
async def cluster(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Operated]:
    async with operated(api_server, tmp_path, members=3) as parts:
        yield Operated(*parts)


async def start(cluster: Operated, storage_class_name: str, **storage: object) -> Object:
    """Make the group and its claims, and let its members start."""
    namespace = cluster.namespace
    body = namespace.make_group(
        storage={"size": "30Gi", "storageClassName": storage_class_name, **storage}
    )
    await cluster.until(
        "the StatefulSet exists",
        lambda: len(namespace.get("statefulsets", group=APPS)["items"]) == 1,
    )
    for ordinal, node in enumerate(cluster.nodes):
        make_claim(namespace, ordinal, storage_class_name)
        namespace.make_pod(parsed(body), ordinal, node.ip)
        await node.say(1, "n0", master=ordinal == 0)
    return body


def volumes(cluster: Operated) -> list[Object]:
    return [each.get("volume", {}) for each in cluster.status().get("members", [])]


def resize(cluster: Operated, size: str) -> None:
    cluster.namespace.patch("dledgergroups", "flights", {"spec": {"storage": {"size": size}}}, API)


async def test_volumes_grow_with_the_spec_across_a_crash_of_the_operator(cluster: Operated) -> None:
    namespace = cluster.namespace
    with storage_class(namespace, grows=True) as name:
        await start(cluster, name)
        resize(cluster, "40Gi")
        await cluster.until("claims ask for it", lambda: requested(namespace) == ["40Gi"] * 3)
        await cluster.until(
            "the growth is shown",
            lambda: (
                {"requested": "40Gi", "capacity": "30Gi"} in volumes(cluster)
                and "data-flights-1 has 30Gi of 40Gi" in cluster.condition("Progressing")["message"]
            ),
        )
        cluster.operator.kill()
        set_capacity(namespace, 0, "40Gi")
        cluster.operator.start()
        set_capacity(namespace, 1, "40Gi")
        await cluster.until(
            "only one is left",
            lambda: (
                "data-flights-2 has 30Gi" in cluster.condition("Progressing")["message"]
                and "data-flights-1" not in cluster.condition("Progressing")["message"]
            ),
        )
        set_capacity(namespace, 2, "40Gi")

        await cluster.until(
            "all have grown",
            lambda: volumes(cluster) == [{"requested": "40Gi", "capacity": "40Gi"}] * 3,
        )
        await cluster.until(
            "nothing more is said of volumes",
            lambda: "volume claim" not in cluster.condition("Progressing")["message"],
        )
        assert "forbidden" not in cluster.operator.log().lower(), "the chart's role suffices"


async def test_a_class_that_cannot_grow_is_stalled_with_the_cure(cluster: Operated) -> None:
    namespace = cluster.namespace
    with storage_class(namespace, grows=False) as name:
        await start(cluster, name)
        resize(cluster, "40Gi")

        await cluster.until(
            "the group is stalled",
            lambda: (
                "only dynamically provisioned pvc can be resized"
                in cluster.condition("Progressing")["message"]
            ),
        )

        for kind in ("Progressing", "Degraded"):
            await cluster.until(
                f"{kind} has the cure",
                lambda kind=kind: (
                    "set allowVolumeExpansion: true in its storage class"  # type: ignore[misc]
                    in cluster.condition(kind)["message"]
                ),
            )
        assert requested(namespace) == ["30Gi"] * 3
        namespace.server.request(
            "PATCH", f"{CLASSES}/{name}", {"allowVolumeExpansion": True}, content_type=MERGE_PATCH
        )
        namespace.patch(
            "persistentvolumeclaims", "data-flights-0", {"metadata": {"labels": {"a": "b"}}}
        )
        await cluster.until("the cure works", lambda: requested(namespace) == ["40Gi"] * 3)


async def test_a_full_volume_grows_by_itself_once_in_its_cool_down(cluster: Operated) -> None:
    namespace = cluster.namespace
    rule = {"step": "10Gi", "maxSize": "100Gi"}
    with storage_class(namespace, grows=True) as name:
        await start(cluster, name, autoGrow=rule)
        await cluster.until("all are seen", lambda: len(volumes(cluster)) == 3)
        full = cluster.nodes[1]
        full.status = replace(
            full.status, volume_size_bytes=30 << 30, volume_available_bytes=0, ready=False
        )

        await cluster.until(
            "the claim grows",
            lambda: (
                requested(namespace) == ["30Gi", str(40 << 30), "30Gi"]
                or requested(namespace) == ["30Gi", "40Gi", "30Gi"]
            ),
        )
        set_capacity(namespace, 1, "40Gi")
        full.status = replace(full.status, volume_size_bytes=40 << 30)
        asked = full.asked
        await cluster.until("it was asked again, twice", lambda: full.asked > asked + 2)

        annotations = namespace.get("persistentvolumeclaims", "data-flights-1")["metadata"][
            "annotations"
        ]
        assert annotations["dledger.io/grown-at"]
        assert requested(namespace)[1] in ("40Gi", str(40 << 30)), "it grew again too soon"


async def test_a_retained_claim_of_a_removed_member_keeps_its_size_until_the_member_returns(
    api: KubeApi, namespace: Namespace
) -> None:
    async def run(body: Object) -> ReconcileResult:
        return await reconcile(api, body, IMAGES, now=NOW, led=True, voters=3)

    with storage_class(namespace, grows=True) as name:
        body = namespace.make_group(storage={"size": "30Gi", "storageClassName": name})
        await reconcile(api, body, IMAGES, now=NOW, led=False, voters=3)
        for ordinal in range(5):
            make_claim(namespace, ordinal, name)
        larger = namespace.patch(
            "dledgergroups", "flights", {"spec": {"storage": {"size": "40Gi"}}}, API
        )
        assert (await run(larger)).growth is not None
        assert requested(namespace) == ["40Gi"] * 3 + ["30Gi"] * 2
        for ordinal in range(3):
            set_capacity(namespace, ordinal, "40Gi")
        assert (await run(larger)).growth is None

        await run(namespace.patch("dledgergroups", "flights", {"spec": {"replicas": 5}}, API))
        assert requested(namespace) == ["40Gi"] * 5


async def test_a_claim_that_changed_since_it_was_read_does_not_grow(
    api: KubeApi, namespace: Namespace
) -> None:
    with storage_class(namespace, grows=True) as name:
        make_claim(namespace, 0, name)
        (seen,) = await api.volume_claims(namespace.name, "flights")
        assert (seen.requested, seen.capacity, seen.grown_at) == ("30Gi", "30Gi", None)

        await api.grow_volume_claim(seen, "40Gi", NOW)

        (grown,) = await api.volume_claims(namespace.name, "flights")
        assert (grown.requested, grown.capacity, grown.grown_at) == ("40Gi", "30Gi", NOW)
        with pytest.raises(ConflictError):
            await api.grow_volume_claim(seen, "50Gi", None)
