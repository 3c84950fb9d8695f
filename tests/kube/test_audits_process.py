"""Audits of one group on a real API server, with the operator as a process."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api_server.client import ApiServer
from dledger_formats.audit import Verdict
from dledger_kube.operated import operated
from dledger_kube.played import Cluster
from dledger_kube.played_audits import PlayedAudits

pytest_plugins = ["api_server.fixtures"]

BEGAN, ENDED = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


@pytest.fixture
async def cluster(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with operated(api_server, tmp_path, members=3) as parts:
        yield Cluster(*parts)


async def test_two_audits_of_a_group_run_one_after_the_other_also_when_a_pod_is_lost(
    cluster: Cluster,
) -> None:
    audits = PlayedAudits(cluster.namespace)
    await cluster.create_group()
    await audits.ask("first")
    await cluster.until("the first begins", lambda: audits.jobs() == {"first-audit"})
    await audits.ask("later")
    await cluster.until("the other waits", lambda: audits.reason("later") == "EarlierAudit")

    await audits.begin("first", BEGAN)
    await cluster.until("the first runs", lambda: audits.reason("first") == "Running")
    await audits.lose("first")
    await cluster.until("it is tried again", lambda: audits.reason("first") == "TryingAgain")
    assert audits.jobs() == {"first-audit"}
    await audits.begin("first", BEGAN, pod="second")
    await audits.end("first", Verdict.SOUND, ENDED, pod="second")

    await cluster.until("the first is Sound", lambda: audits.reason("first") == "Sound")
    await cluster.until("the other begins", lambda: "later-audit" in audits.jobs())
