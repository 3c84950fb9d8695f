"""Two operators at once: the replicas of a release, and two releases."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api_server.client import ApiServer
from dledger_kube.cluster import API
from dledger_kube.operated import operated
from dledger_kube.operator_account import operator_kubeconfig
from dledger_kube.operator_process import OperatorProcess
from dledger_kube.played import Cluster, led_by
from dledger_operator.behaviors.leader.role_labeler import HEAD_START_S

pytest_plugins = ["api_server.fixtures"]

TAKEN_S_MAX = 10.0
"""Twice what is promised, since the machine may be busy; `test_leases` checks the promise."""
HANDED_OVER_S_MAX = 3.0
"""kopf waited 5 s for tasks of ours that did not end, before the Lease was given up."""


@pytest.fixture
async def cluster(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with operated(api_server, tmp_path, members=3) as parts:
        yield Cluster(*parts)


def second_replica(cluster: Cluster, folder: Path) -> OperatorProcess:
    kubeconfig = Path(cluster.operator.environment["KUBECONFIG"])
    return OperatorProcess(kubeconfig, cluster.namespace.name, folder, identity="operator-1")


def second_release(cluster: Cluster, folder: Path) -> OperatorProcess:
    namespace = cluster.namespace
    kubeconfig = operator_kubeconfig(namespace.server, namespace, folder, release="other")
    return OperatorProcess(
        kubeconfig, namespace.name, folder, release="other", identity="stranger-0"
    )


def lease_held(metrics: str) -> float | None:
    """Return the metric of a process of a release, with the release's name as its label."""
    found = re.search(
        r'^dledger_operator_lease_held\{release="[^"/]+/[^"/]+"\} (\S+)$', metrics, re.MULTILINE
    )
    return float(found[1]) if found else None


async def until_lease_is(cluster: Cluster, operator: OperatorProcess, held: float) -> None:
    def shown() -> bool:
        with contextlib.suppress(OSError):
            return lease_held(operator.metrics()) == held
        return False

    await cluster.until(f"the Lease is held: {held}", shown)


async def test_the_second_replica_follows_and_takes_over(cluster: Cluster, tmp_path: Path) -> None:
    await until_lease_is(cluster, cluster.operator, 1.0)
    await cluster.create_group()
    await cluster.elect(1, 7)
    await cluster.until("n1 is labeled", lambda: cluster.roles() == led_by(1))
    await cluster.until(
        "the status names n1's term", lambda: cluster.last_change().get("term") == 7
    )
    with second_replica(cluster, tmp_path) as second:
        await until_lease_is(cluster, second, 0.0)
        await cluster.until(
            "the second one follows", lambda: "started the group's worker" in second.log()
        )
        assert "dledger_group_leader{" not in await asyncio.to_thread(second.metrics)
        assert await asyncio.to_thread(second.is_ready), "a rollout waits for it"

        cluster.operator.kill()
        killed_s = time.monotonic()
        await cluster.elect(2, 8)
        await cluster.until("n2 is labeled", lambda: cluster.roles() == led_by(2))
        labeled_s = time.monotonic() - killed_s
        metrics = await asyncio.to_thread(second.metrics)
        assert lease_held(metrics) == 0.0, "labels do not wait for the Lease"
        await until_lease_is(cluster, second, 1.0)
        taken_s = time.monotonic() - killed_s
        await cluster.until(
            "the status names n2's term", lambda: cluster.last_change().get("term") == 8
        )
        reported_s = time.monotonic() - killed_s
        print(f"labeled {labeled_s:.2f} s, taken {taken_s:.2f} s, reported {reported_s:.2f} s")

        assert taken_s < TAKEN_S_MAX
        cluster.operator.start()
        await until_lease_is(cluster, cluster.operator, 0.0)
        began_s = time.monotonic()
        assert await asyncio.to_thread(second.stop) == 0
        await until_lease_is(cluster, cluster.operator, 1.0)
        handed_over_s = time.monotonic() - began_s
        print(f"handed over {handed_over_s:.2f} s after SIGTERM")
        assert handed_over_s < HANDED_OVER_S_MAX


async def test_a_second_release_touches_nothing_and_says_so(
    cluster: Cluster, tmp_path: Path
) -> None:
    await cluster.create_group()
    await cluster.elect(1, 7)
    await cluster.until("n1 is labeled", lambda: cluster.roles() == led_by(1))
    with second_release(cluster, tmp_path) as stranger:
        here = cluster.namespace.name
        await cluster.until("it says so", lambda: f"{here}: another release" in stranger.log())
        cluster.operator.kill()
        await cluster.elect(2, 8)
        await until_lease_is(cluster, stranger, 1.0)  # its own release's
        metrics = (await asyncio.to_thread(stranger.metrics)).splitlines()
        assert "dledger_operator_namespaces_of_others 1.0" in metrics
        assert cluster.roles() == led_by(1), "a stranger's pods keep their labels"
        assert "started the group's worker" not in stranger.log()

        cluster.operator.start()
        await cluster.until("n2 is labeled", lambda: cluster.roles() == led_by(2))


async def test_replicas_agree_after_a_change_of_roles(cluster: Cluster, tmp_path: Path) -> None:
    """The one that stood by put the old labels back, again and again."""
    await until_lease_is(cluster, cluster.operator, 1.0)
    await cluster.create_group()
    await cluster.elect(1, 7)
    await cluster.until("n1 is labeled", lambda: cluster.roles() == led_by(1))
    with second_replica(cluster, tmp_path) as second:
        await cluster.until(
            "the second one follows", lambda: "started the group's worker" in second.log()
        )
        new = {"spec": {"roles": {"master": "leader", "slave": "follower"}}}
        cluster.namespace.patch("dledgergroups", "flights", new, API)
        expected = {
            pod: "leader" if role == "master" else "follower" for pod, role in led_by(1).items()
        }
        await cluster.until("the new labels are there", lambda: cluster.roles() == expected, 5.0)

        before = old_labels(cluster.operator, second)
        assert before
        await cluster.elect(1, 7)
        await asyncio.sleep(3 * HEAD_START_S)  # as long as a fight takes to begin
        assert cluster.roles() == expected
        assert old_labels(cluster.operator, second) == before


def old_labels(*operators: OperatorProcess) -> list[str]:
    """Return what operators have logged of labels with the roles that a group has by default."""
    written = re.compile(r"labeled pod \S+ as (?:master|slave) .*")
    return [line for each in operators for line in written.findall(each.log())]
