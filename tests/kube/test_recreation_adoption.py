"""A StatefulSet that is made again, with the real StatefulSet controller and garbage collector."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from api_server.client import ApiServer
from api_server.server import child
from dledger_kube.cluster import API, Namespace, Object
from dledger_kube.objects import IMAGES, NOW
from dledger_operator.behaviors.children.reconcile import reconcile
from dledger_operator.clients.errors import ConflictError
from dledger_operator.clients.kubernetes import KubeApi
from tools.groups.ports import free_ports

pytest_plugins = ["api_server.fixtures", "dledger_kube.fixtures"]

APPS = "/apis/apps/v1"
WAIT_S = 60.0


@contextmanager
def controllers(server: ApiServer) -> Iterator[None]:
    """Run the controllers of StatefulSets and of orphans."""
    command = [
        str(server.programs / "kube-controller-manager"),
        f"--kubeconfig={server.kubeconfig}",
        "--controllers=statefulset-controller,garbage-collector-controller",
        "--leader-elect=false",
        f"--secure-port={next(free_ports())}",
        "--bind-address=127.0.0.1",
    ]
    with child("kube-controller-manager", command, server.folder):
        yield


def pods(namespace: Namespace) -> dict[str, str]:
    """The uid of each pod, by the uid of its owner and its name."""
    return {
        f"{(each['metadata'].get('ownerReferences') or [{'uid': ''}])[0]['uid']} "
        f"{each['metadata']['name']}": each["metadata"]["uid"]
        for each in namespace.get("pods")["items"]
    }


async def test_the_controller_adopts_the_pods_of_a_stateful_set_that_is_made_again(
    api_server: ApiServer, api: KubeApi, namespace: Namespace
) -> None:
    async def until_owned(former: str = "") -> str:
        """Run the operator until three pods are owned by another StatefulSet than the former."""
        body: Object = namespace.get("dledgergroups", "flights", API)
        deadline_s = asyncio.get_running_loop().time() + WAIT_S
        while asyncio.get_running_loop().time() < deadline_s:
            with suppress(ConflictError):  # the controller wrote first; the operator tries again
                await reconcile(api, body, IMAGES, now=NOW, led=True, voters=3)
            found = namespace.get("statefulsets", group=APPS)["items"]
            uid = found[0]["metadata"]["uid"] if found else former
            if uid != former and sum(key.startswith(uid) for key in pods(namespace)) == 3:
                return str(uid)
            await asyncio.sleep(0.1)
        raise AssertionError(pods(namespace))

    with controllers(api_server):
        namespace.make_group()
        first = await until_owned()
        before = sorted(pods(namespace).values())
        change = {"spec": {"storage": {"size": "40Gi"}}}
        namespace.patch("dledgergroups", "flights", change, API)
        second = await until_owned(former=first)

    assert second != first
    assert sorted(pods(namespace).values()) == before, "a pod was made again"
    (made,) = namespace.get("statefulsets", group=APPS)["items"]
    (template,) = made["spec"]["volumeClaimTemplates"]
    assert template["spec"]["resources"]["requests"]["storage"] == "40Gi"
    assert len(namespace.get("persistentvolumeclaims")["items"]) == 3
