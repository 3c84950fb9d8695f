"""The operator after minutes in which the API server refused, went away and dropped watches.

`--trouble-seconds 600` plays ten minutes. A proxy in front of a real API server injects the
faults; members are faked.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable

import pytest

from dledger_kube.cluster import API
from dledger_kube.faulty_proxy import FaultyProxy
from dledger_kube.played import Cluster, led_by
from dledger_operator import names

pytest_plugins = ["api_server.fixtures", "dledger_kube.behind_proxy"]

APPS = "/apis/apps/v1"
RIGHT_S_MAX = 3.0
"""How soon labels must be right after the server's return."""
TRAINS_SERVICES = [
    of("trains") for of in (names.nodes_service, names.master_service, names.slave_service)
]
PARTS = 10
"""How many faults follow each other in the trouble's time."""


def create_trains(cluster: Cluster) -> None:
    """Create a second group, which has no members."""
    space = cluster.namespace
    body = {
        "apiVersion": "dledger.io/v1alpha1",
        "kind": "DLedgerGroup",
        "metadata": {"name": "trains"},
        "spec": {"storage": {"size": "30Gi"}},
    }
    space.server.request("POST", space.path("dledgergroups", group=API), body)


def delete_trains(cluster: Cluster) -> None:
    """Delete the second group and its children, as the garbage collector does."""
    space = cluster.namespace
    space.server.request("DELETE", space.path("dledgergroups", "trains", API))
    space.server.request("DELETE", space.path("statefulsets", "trains", APPS))
    for service in TRAINS_SERVICES:
        space.server.request("DELETE", space.path("services", service))


async def test_all_is_right_soon_after_minutes_of_changing_faults(
    cluster: Cluster, proxy: FaultyProxy, request: pytest.FixtureRequest
) -> None:
    trouble_s = float(request.config.getoption("--trouble-seconds"))
    await cluster.create_group()
    await asyncio.to_thread(create_trains, cluster)
    await cluster.until("trains has Services", lambda: cluster.has("services", "trains-slave"))
    await cluster.elect(1, 7)
    await cluster.until("n1 is labeled", lambda: cluster.roles() == led_by(1))

    async def cut_watches() -> None:
        proxy.pass_on()
        await proxy.cut_watches()

    faults: list[Callable[[], Awaitable[None]]] = [
        lambda: proxy.refuse_with(503),
        lambda: proxy.refuse_with(429, retry_after="1"),
        lambda: proxy.refuse_with(403),
        cut_watches,
        proxy.stop,
    ]

    for number, fault in zip(range(PARTS), itertools.cycle(faults), strict=False):
        await fault()
        await cluster.elect(number % 3, 8 + number)
        if number == PARTS // 2:
            await asyncio.to_thread(delete_trains, cluster)
        await asyncio.sleep(trouble_s / PARTS)  # the trouble's length is the test's input
        await proxy.start()
    last_leader = (PARTS - 1) % 3
    proxy.pass_on()
    returned_s = time.monotonic()

    await cluster.until(
        "the leader is labeled", lambda: cluster.roles() == led_by(last_leader), RIGHT_S_MAX
    )
    print(f"labels were right {time.monotonic() - returned_s:.2f} s after the server's return")
    await cluster.until(
        "only one group is left", lambda: '"groups": 1' in cluster.operator.health()
    )
    assert not cluster.has("statefulsets", "trains")
    assert not any(cluster.has("services", each) for each in TRAINS_SERVICES)
