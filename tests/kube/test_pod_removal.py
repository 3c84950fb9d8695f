"""Removing a member's pod from a real API server: only the pod that was read, within the budget."""

import pytest

from api_server.client import RefusedError as ServerRefusedError
from dledger_kube.cluster import Namespace, Object, parsed
from dledger_kube.objects import IMAGES, NOW
from dledger_operator.api_objects import PodView
from dledger_operator.behaviors.children.reconcile import reconcile
from dledger_operator.clients.errors import ConflictError, EvictionRefusedError
from dledger_operator.clients.kubernetes import KubeApi

pytest_plugins = ["api_server.fixtures", "dledger_kube.fixtures"]


async def make_pods(api: KubeApi, namespace: Namespace, ready: int) -> list[PodView]:
    """Make a group with three pods, of which the first ones are ready."""
    body = namespace.make_group()
    await reconcile(api, body, IMAGES, now=NOW, led=False, voters=3)
    for ordinal in range(3):
        namespace.make_pod(parsed(body), ordinal, f"192.0.2.{ordinal + 1}")
        if ordinal >= ready:
            namespace.make_pod_unready(f"flights-{ordinal}")
    namespace.play_budget("flights")
    return await api.member_pods(namespace.name, "flights")


def existing(namespace: Namespace) -> set[str]:
    return {pod["metadata"]["name"] for pod in namespace.get("pods")["items"]}


def evict(namespace: Namespace, pod: str) -> None:
    """Do what a drain does."""
    sent: Object = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    namespace.server.request("POST", namespace.path("pods", f"{pod}/eviction"), sent)


@pytest.mark.parametrize("ready", [3, 2])
async def test_a_pod_that_has_changed_since_it_was_read_stays(
    api: KubeApi, namespace: Namespace, ready: int
) -> None:
    pod = (await make_pods(api, namespace, ready))[2]
    namespace.patch("pods", pod.name, {"metadata": {"annotations": {"of": "somebody"}}})

    with pytest.raises(ConflictError):
        await api.replace_pod(pod)

    assert existing(namespace) == {"flights-0", "flights-1", "flights-2"}


@pytest.mark.parametrize("ready", [3, 2])
async def test_another_pod_of_the_same_name_stays(
    api: KubeApi, namespace: Namespace, ready: int
) -> None:
    pod = (await make_pods(api, namespace, ready))[2]
    body = namespace.get("dledgergroups", "flights", "/apis/dledger.io/v1alpha1")
    namespace.delete_pod(pod.name)
    namespace.make_pod(parsed(body), 2, "192.0.2.3")

    with pytest.raises(ConflictError):
        await api.replace_pod(pod)

    assert pod.name in existing(namespace)


async def test_the_budget_keeps_a_second_ready_pod_while_a_drain_takes_one(
    api: KubeApi, namespace: Namespace
) -> None:
    pods = await make_pods(api, namespace, 3)
    evict(namespace, "flights-0")

    with pytest.raises(EvictionRefusedError, match="disruption budget"):
        await api.replace_pod(pods[2])

    assert existing(namespace) == {"flights-1", "flights-2"}


async def test_a_drain_takes_no_second_pod_while_the_operator_replaces_one(
    api: KubeApi, namespace: Namespace
) -> None:
    pods = await make_pods(api, namespace, 3)
    await api.replace_pod(pods[2])

    with pytest.raises(ServerRefusedError, match="disruption budget"):
        evict(namespace, "flights-0")

    assert existing(namespace) == {"flights-0", "flights-1"}


async def test_a_pod_that_is_not_ready_is_replaced_although_the_budget_is_used_up(
    api: KubeApi, namespace: Namespace
) -> None:
    pods = await make_pods(api, namespace, 0)

    await api.replace_pod(pods[2])

    assert existing(namespace) == {"flights-0", "flights-1"}


async def test_a_drain_takes_the_only_member_although_it_is_not_ready(
    api: KubeApi, namespace: Namespace
) -> None:
    """Under `IfHealthyBudget`, a budget that desires no healthy pod lets no unready one go."""
    body = namespace.make_group(replicas=1)
    await reconcile(api, body, IMAGES, now=NOW, led=False, voters=1)
    namespace.make_pod(parsed(body), 0, "192.0.2.1")
    namespace.make_pod_unready("flights-0")
    namespace.play_budget("flights")

    evict(namespace, "flights-0")

    assert existing(namespace) == set()
