"""The operator while the API server is down, refuses requests or cuts watches.

A proxy in front of a real API server injects the faults; members are faked.
"""

import asyncio
import contextlib
import itertools
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from api_server.client import ApiServer
from dledger_kube.cluster import API
from dledger_kube.faulty_proxy import FaultyProxy
from dledger_kube.operated import operated
from dledger_kube.played import Cluster, led_by
from dledger_operator.api_patience import BACKOFF_S_MAX, EndlessBackoffs
from dledger_operator.watching import kopf_settings

pytest_plugins = ["api_server.fixtures", "dledger_kube.behind_proxy"]

RIGHT_S_MAX = 3.0
"""How soon labels must be right after the server's return."""
TROUBLE_S = 4.0
ASKED_S = 3
"""The Retry-After of an overloaded server."""
TASKS_OF_A_PATH_MAX = 2
"""A kind is listed by a watch and by the comparison of watches, for example."""
STOPPED_S_MAX = 3.0
APPS = "/apis/apps/v1"
WAITS = re.compile("the API server at http[^ ]+: UnavailableError")

Fault = Callable[[FaultyProxy], Awaitable[None]]


def test_requests_are_repeated_without_an_end_and_soon_enough() -> None:
    backoffs = kopf_settings(EndlessBackoffs(Random(1))).networking.error_backoffs
    assert not isinstance(backoffs, float)

    for _ in range(2):  # kopf iterates anew for every request
        pauses_s = list(itertools.islice(backoffs, 10_000))
        assert len(pauses_s) == 10_000
        assert max(pauses_s) <= BACKOFF_S_MAX < RIGHT_S_MAX


@pytest.mark.parametrize(
    "fault",
    [
        lambda proxy: proxy.refuse_with(503),
        lambda proxy: proxy.refuse_with(401),
        lambda proxy: proxy.refuse_with(403),
        lambda proxy: proxy.refuse_with(404),
        lambda proxy: proxy.refuse_with(429, retry_after="1"),
        lambda proxy: proxy.stop(),
    ],
    ids=["503", "401", "403", "404", "429", "down"],
)
async def test_labels_are_right_soon_after_the_servers_return(
    cluster: Cluster, proxy: FaultyProxy, fault: Fault
) -> None:
    await cluster.create_group()
    await cluster.elect(1, 7)
    await cluster.until("n1 is labeled", lambda: cluster.roles() == led_by(1))

    await fault(proxy)
    await cluster.elect(2, 8)
    await asyncio.sleep(TROUBLE_S)  # the trouble's length is the test's input
    assert cluster.roles() == led_by(1)
    proxy.pass_on()
    await proxy.start()

    await cluster.until("n2 is labeled", lambda: cluster.roles() == led_by(2), RIGHT_S_MAX)
    health = await asyncio.to_thread(cluster.operator.health)
    assert '"groups": 1' in health


async def test_a_group_is_followed_after_something_else_has_answered_404_for_the_server(
    cluster: Cluster, proxy: FaultyProxy
) -> None:
    """No watch event would report that the group still exists."""
    await cluster.create_group()
    await cluster.elect(1, 7)
    await cluster.until("n1 is labeled", lambda: cluster.roles() == led_by(1))

    proxy.refuse_new_requests_with(404)
    await cluster.elect(2, 8)
    await asyncio.sleep(TROUBLE_S)  # the trouble's length is the test's input
    proxy.pass_on()
    await cluster.elect(0, 9)

    await cluster.until("n0 is labeled", lambda: cluster.roles() == led_by(0), RIGHT_S_MAX)
    assert '"groups": 1' in await asyncio.to_thread(cluster.operator.health)


async def test_labels_are_right_soon_after_a_watch_has_failed(
    cluster: Cluster, proxy: FaultyProxy
) -> None:
    """kopf takes such an error for fatal, and cancels all that was started since it began."""
    await cluster.create_group()
    await cluster.elect(1, 7)
    await cluster.until("n1 is labeled", lambda: cluster.roles() == led_by(1))

    async def fail_and_elect(number: int, term: int) -> None:
        before = failed_watches(cluster)
        await proxy.fail_a_watch()
        await cluster.until("a watch has failed", lambda: failed_watches(cluster) > before)
        await cluster.elect(number, term)
        await cluster.until(
            "the new leader is labeled", lambda: cluster.roles() == led_by(number), RIGHT_S_MAX
        )
        await cluster.until("its probe is answered", lambda: has_group(cluster), RIGHT_S_MAX)

    await fail_and_elect(2, 8)
    await fail_and_elect(0, 9)


def failed_watches(cluster: Cluster) -> int:
    """Count the watches that have ended with an error."""
    return cluster.operator.log().count("has failed: Error in the watch-stream")


def has_group(cluster: Cluster) -> bool:
    """Return whether the operator says that it takes care of the group."""
    with contextlib.suppress(OSError):
        return '"groups": 1' in cluster.operator.health()
    return False


async def test_an_operator_that_waits_for_the_server_stops_at_once(
    cluster: Cluster, proxy: FaultyProxy
) -> None:
    await proxy.refuse_with(401)
    await cluster.until("it waits", lambda: WAITS.search(cluster.operator.log()) is not None)
    assert "waiting" in await asyncio.to_thread(cluster.operator.health)
    metrics = await asyncio.to_thread(cluster.operator.metrics)
    assert re.search(r"^dledger_operator_lease_held\{.*\} 0\.0$", metrics, re.MULTILINE)
    began_s = time.monotonic()

    assert await asyncio.to_thread(cluster.operator.stop) == 0
    assert time.monotonic() - began_s < STOPPED_S_MAX
    cluster.operator.start()


async def test_a_start_waits_for_the_server(
    api_server: ApiServer, proxy: FaultyProxy, tmp_path: Path
) -> None:
    await proxy.stop()
    async with operated(api_server, tmp_path, members=3, through=proxy) as parts:
        cluster = Cluster(*parts)
        await cluster.until(
            "it says that it waits", lambda: "will try again" in cluster.operator.log()
        )
        assert "waiting" in await asyncio.to_thread(cluster.operator.health)
        assert not await asyncio.to_thread(cluster.operator.is_ready)
        await proxy.start()

        await cluster.create_group()
        await cluster.elect(1, 7)
        await cluster.until("n1 is labeled", lambda: cluster.roles() == led_by(1))
        assert await asyncio.to_thread(cluster.operator.is_ready)


async def test_a_start_asks_an_overloaded_server_no_sooner_than_it_wants_to_be_asked(
    api_server: ApiServer, proxy: FaultyProxy, tmp_path: Path
) -> None:
    await proxy.refuse_with(429, retry_after=f"{ASKED_S}")
    async with operated(api_server, tmp_path, members=3, through=proxy) as parts:
        await Cluster(*parts).until("it asks", lambda: proxy.refused != [])
        await asyncio.sleep(3 * ASKED_S)  # the trouble's length is the test's input

        assert 2 <= len(proxy.refused) <= 5


async def test_an_overloaded_server_is_asked_by_each_task_no_sooner_than_it_wants_to_be(
    cluster: Cluster, proxy: FaultyProxy
) -> None:
    await cluster.create_group()
    await cluster.elect(1, 7)
    await cluster.until("n1 is labeled", lambda: cluster.roles() == led_by(1))
    await proxy.refuse_with(429, retry_after=f"{ASKED_S}")
    await asyncio.sleep(2 * ASKED_S)  # every task has been refused, and the Leases have lapsed
    proxy.refused.clear()
    await asyncio.sleep(4 * ASKED_S)

    asked = Counter(proxy.refused)
    assert len(asked) > 10
    assert max(asked.values()) <= 5 * TASKS_OF_A_PATH_MAX, asked.most_common(3)
    proxy.pass_on()
    await cluster.elect(2, 8)
    await cluster.until(
        "n2 is labeled", lambda: cluster.roles() == led_by(2), ASKED_S + RIGHT_S_MAX
    )


async def test_no_child_is_made_of_a_group_whose_deletion_was_missed(
    cluster: Cluster, proxy: FaultyProxy
) -> None:
    await cluster.create_group()
    await cluster.elect(1, 7)
    await cluster.until("n1 is labeled", lambda: cluster.roles() == led_by(1))

    await proxy.refuse_with(503)
    server, namespace = cluster.namespace.server, cluster.namespace
    for path in (
        namespace.path("dledgergroups", "flights", API),
        namespace.path("statefulsets", "flights", APPS),
        namespace.path("services", "flights-master"),
    ):
        await asyncio.to_thread(server.request, "DELETE", path)
    proxy.pass_on()
    returned_s = time.monotonic()

    await cluster.until("the worker stops", lambda: '"groups": 0' in cluster.operator.health())
    assert not cluster.has("statefulsets", "flights")
    assert not cluster.has("services", "flights-master")
    assert time.monotonic() - returned_s < 30


async def test_cut_watches_are_opened_again(cluster: Cluster, proxy: FaultyProxy) -> None:
    await cluster.create_group()
    await cluster.until("the Service exists", lambda: cluster.has("services", "flights-master"))
    for term in (7, 8, 9):
        await proxy.cut_watches()
        leader = term % 3
        await cluster.elect(leader, term)
        await cluster.until(
            "it is labeled", lambda leader=leader: cluster.roles() == led_by(leader)
        )

    deleted = cluster.service_uid("flights-master")
    path = cluster.namespace.path("services", "flights-master")
    await asyncio.to_thread(cluster.namespace.server.request, "DELETE", path)
    await cluster.until(
        "it is made again", lambda: cluster.service_uid("flights-master") not in ("", deleted)
    )
