"""The operator as a process, while an address of its group passes to another group's member."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from api_server.client import ApiServer
from dledger_kube.cluster import Object, parsed
from dledger_kube.operated import Operated, operated
from dledger_operator import names

pytest_plugins = ["api_server.fixtures"]
APPS = "/apis/apps/v1"


@dataclass(slots=True)
class Cluster(Operated):
    """A namespace with an operator and three fake members."""

    def stateful_sets(self) -> list[Object]:
        return list(self.namespace.get("statefulsets", group=APPS)["items"])

    def identity(self) -> str:
        """Return the identity that the status names; empty before it does."""
        return str(self.status().get("identity", ""))

    def pods(self) -> dict[str, tuple[str, str]]:
        """Return each pod's role and term."""
        return {
            pod["metadata"]["name"]: (
                pod["metadata"]["labels"].get(names.ROLE_LABEL, ""),
                pod["metadata"].get("annotations", {}).get(names.TERM_ANNOTATION, ""),
            )
            for pod in self.namespace.get("pods")["items"]
        }

    def roles(self) -> dict[str, str]:
        return {name: role for name, (role, _) in self.pods().items()}


@pytest.fixture
async def cluster(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with operated(api_server, tmp_path, members=3) as parts:
        yield Cluster(*parts)


async def test_a_group_of_the_same_name_at_a_stale_address_moves_no_label(cluster: Cluster) -> None:
    body: Any = cluster.namespace.make_group()
    await cluster.until("the StatefulSet exists", lambda: bool(cluster.stateful_sets()))
    for ordinal, node in enumerate(cluster.nodes):
        cluster.namespace.make_pod(parsed(body), ordinal, node.ip)
    identity = body["metadata"]["uid"]
    (made,) = cluster.stateful_sets()
    assert made["metadata"]["annotations"][names.IDENTITY_ANNOTATION] == identity
    for node in cluster.nodes:
        await node.say(7, "n1", identity)
    led = {"flights-0": ("slave", "7"), "flights-1": ("master", "7"), "flights-2": ("slave", "7")}
    await cluster.until("n1 is labeled", lambda: cluster.pods() == led)
    await cluster.until("the status names it", lambda: cluster.identity() == identity)

    # Its pod is not known to be gone, and another group's pod, in a later term, has its address.
    await cluster.nodes[2].say(99, "n2", "another-group")
    without_n2 = led | {"flights-2": ("none", "7")}
    await cluster.until("n2 counts as silent", lambda: cluster.pods() == without_n2)

    for node in cluster.nodes[:2]:
        await node.say(8, "n0", identity)
    moved = {"flights-0": "master", "flights-1": "slave", "flights-2": "none"}
    await cluster.until("the group's own election counts", lambda: cluster.roles() == moved)
    terms = {term for _, term in (await asyncio.to_thread(cluster.pods)).values()}
    assert terms <= {"7", "8"}
