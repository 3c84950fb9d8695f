"""Spark makes the pods of executors on a real API server, with the driver's permissions alone.

The Job is the operator's. The test plays the kubelets: the processes are real and run on loopback.
"""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from random import SystemRandom

import pytest

from api_server.client import ApiServer, certificate
from dledger_audit.executors import settings
from dledger_compaction.model import key_history
from dledger_formats.audit import AuditFailure, AuditSummary
from dledger_kube.cluster import MERGE_PATCH, Object
from dledger_kube.operated import operated
from dledger_kube.played import Cluster
from dledger_kube.played_audits import BATCH, PlayedAudits
from dledger_kube.played_executors import COMMAND, PlayedExecutors, environment_of
from dledger_logs import damage
from dledger_logs.histories import small_shape
from dledger_logs.layout import Log, manifest
from dledger_logs.serve import served
from dledger_logs.write import write_log
from dledger_scan.local_audit import local_audit

pytest_plugins = ["api_server.fixtures"]
pytestmark = pytest.mark.spark
RUN_S_MAX = 900.0
SMALL = {"requests": {"cpu": "100m"}, "limits": {"memory": "1200Mi"}}


@pytest.fixture
async def cluster(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with operated(api_server, tmp_path, members=3) as parts:
        yield Cluster(*parts)


def logs_in(folder: Path) -> dict[str, Log]:
    """Write the logs of three members, one of them with a damaged entry."""
    logs = {
        member: write_log(folder / member, key_history(2000, 3), small_shape())
        for member in ("n0", "n1", "n2")
    }
    damage.flip_body(logs["n1"], next(p.index for p in logs["n1"].places if p.size > 60))
    return logs


class Driver:
    """The pod of an audit's Job, as the operator asks for it, with its process on loopback."""

    def __init__(self, cluster: Cluster, audit: str, folder: Path) -> None:
        self.namespace, self.folder = cluster.namespace, folder
        subnet = f"127.{SystemRandom().randint(1, 254)}.{SystemRandom().randint(1, 254)}"
        self.ip, self.summary = f"{subnet}.2", folder / "termination-log"
        self.pod = self.namespace.get("pods", f"{audit}-audit-first")
        self.account = str(self.pod["spec"]["serviceAccountName"])
        self.kubeconfig = self.namespace.kubeconfig_of(self.account, folder)
        server, account = self.namespace.server, folder / "account"
        account.mkdir()
        (account / "token").write_text(self.namespace.token(self.account))
        (account / "ca.crt").write_bytes(certificate(server.folder).read_bytes())
        (folder / "executors").mkdir()
        self.executors = PlayedExecutors(self.namespace, subnet, folder / "executors")

    def run(self, urls: dict[str, str]) -> "subprocess.CompletedProcess[str]":
        """Run the container's command, with the members at other URLs."""
        (container,) = self.pod["spec"]["containers"]
        words = [*COMMAND, "--group", "g", "--verdict-exits-0"]
        for member, url in urls.items():
            words += ["--member", f"{member}={url}"]
        words += ["--summary-file", str(self.summary)]
        server = f"k8s://https://127.0.0.1:{self.namespace.server.port}"
        options = [
            "--master", server, "--executors", _after(container["args"], "--executors"),
            "--executors-within", _after(container["args"], "--executors-within"),
        ]  # fmt: skip
        environment = environment_of(self.pod, self.ip, self.folder)
        return subprocess.run(
            [*words, *options], capture_output=True, text=True, check=False, timeout=RUN_S_MAX,
            env=environment | {
                "KUBECONFIG": str(self.kubeconfig),
                settings.ACCOUNT: str(self.folder / "account"),
            },
        )  # fmt: skip


def _after(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


async def driver_of(cluster: Cluster, folder: Path, **executors: object) -> Driver:
    audits = PlayedAudits(cluster.namespace)
    await cluster.create_group()
    await audits.ask("first", executors={"max": 2, "resources": SMALL, **executors})
    await cluster.until("it begins", lambda: audits.jobs() == {"first-audit"})
    assert cluster.namespace.get("jobs", "first-audit", BATCH)
    await audits.begin("first", "2026-01-01T00:00:00Z")
    return Driver(cluster, "first", folder)


@pytest.mark.sampled(1, among="executors of Spark")
async def test_spark_makes_two_restricted_pods_that_give_the_result_of_one_process(
    cluster: Cluster, tmp_path: Path
) -> None:
    driver = await driver_of(cluster, tmp_path, startWithin="5m")
    logs = logs_in(tmp_path / "logs")
    with ExitStack() as stack:
        urls = {
            member: stack.enter_context(served(log.root, manifest(log, member, peers=logs)))
            for member, log in logs.items()
        }
        stack.enter_context(driver.executors.playing())
        ended = await asyncio.to_thread(driver.run, urls)

    told = f"{ended.stderr}\n{driver.executors.log()}"
    assert ended.returncode == 0, told
    assert AuditSummary.from_json(driver.summary.read_bytes()) == local_audit(logs), told
    assert "2 of 2 executors of Spark run" in ended.stderr
    assert len(driver.executors.seen) == 2
    for each in driver.executors.seen.values():
        (owned_by,) = each["metadata"]["ownerReferences"]
        assert (owned_by["kind"], owned_by["uid"]) == ("Pod", driver.pod["metadata"]["uid"])
        assert each["spec"]["serviceAccountName"] == "default"
        assert each["spec"]["automountServiceAccountToken"] is False
        (container,) = each["spec"]["containers"]
        assert container["resources"]["limits"] == {"memory": "1200Mi"}
        assert container["resources"]["requests"] == {"cpu": "100m", "memory": "1200Mi"}
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        volumes = [volume for volume in each["spec"]["volumes"] if "emptyDir" in volume]
        assert [volume["emptyDir"] for volume in volumes] == [{"sizeLimit": "4Gi"}]
    assert driver.executors.left() == []
    assert cluster.namespace.get("configmaps")["items"] == [
        each
        for each in cluster.namespace.get("configmaps")["items"]
        if not each["metadata"]["name"].startswith("spark")
    ]


async def test_an_impossible_quota_ends_the_audit_and_the_reason_names_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    driver = await driver_of(cluster, tmp_path, startWithin="10s")
    quota: Object = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"limits.memory": "1Gi"}},
    }
    namespace = cluster.namespace
    namespace.server.request("POST", namespace.path("resourcequotas"), quota)
    counted = {"status": {"hard": {"limits.memory": "1Gi"}, "used": {"limits.memory": "0"}}}
    path = namespace.path("resourcequotas", "none/status")
    namespace.server.request("PATCH", path, counted, content_type=MERGE_PATCH)
    logs = logs_in(tmp_path / "logs")
    with served(logs["n0"].root, manifest(logs["n0"], "n0")) as url:
        ended = await asyncio.to_thread(driver.run, {"n0": url})

    assert ended.returncode == 0, ended.stderr
    failure = AuditFailure.from_json(driver.summary.read_bytes())
    assert failure.failed == "NoExecutors"
    assert failure.message.startswith("an executor's pod is refused: ")
    assert "exceeded quota: none" in failure.message
