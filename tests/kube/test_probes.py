"""What the operator answers the kubelet's probes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import yaml

from api_server.client import Helm
from dledger_operator.main import serve
from dledger_operator.probes import Probes
from tools.groups.ports import free_ports

pytest_plugins = ["api_server.fixtures"]

CHART = Path(__file__).resolve().parents[2] / "helm" / "dledger-operator"


class Pages:
    """The two pages on a port, and what they answer from."""

    def __init__(self, port: int, session: aiohttp.ClientSession) -> None:
        self.probes = Probes()
        self._port, self._session = port, session

    async def ask(self, path: str) -> tuple[int, str]:
        async with self._session.get(f"http://127.0.0.1:{self._port}{path}") as answer:
            return answer.status, await answer.text()


@pytest.fixture
async def pages() -> AsyncIterator[Pages]:
    port = next(free_ports())
    async with aiohttp.ClientSession() as session:
        made = Pages(port, session)
        shown = {"/healthz": made.probes.healthz, "/readyz": made.probes.readyz}
        async with serve(shown, port, setting="health_port"):
            yield made


async def test_a_process_that_waits_for_the_first_time_is_alive_and_not_ready(pages: Pages) -> None:
    assert await pages.ask("/healthz") == (200, '{"waiting": "the API server"}')
    assert (await pages.ask("/readyz"))[0] == 503


async def test_a_process_that_watches_is_ready_and_stays_so_while_it_waits(pages: Pages) -> None:
    pages.probes.watches(lambda: {"groups": 2})
    assert await pages.ask("/healthz") == (200, '{"workers": {"groups": 2}}')
    assert (await pages.ask("/readyz"))[0] == 200

    pages.probes.waits()
    assert await pages.ask("/healthz") == (200, '{"waiting": "the API server"}')
    assert (await pages.ask("/readyz"))[0] == 200


async def test_a_crashed_worker_fails_the_liveness_probe_alone(pages: Pages) -> None:
    def check() -> dict[str, int]:
        raise RuntimeError("a worker has crashed")

    pages.probes.watches(check)

    assert await pages.ask("/healthz") == (500, '{"failed": "a worker has crashed"}')
    assert (await pages.ask("/readyz"))[0] == 200


async def test_a_connection_serves_one_probe(pages: Pages) -> None:
    """When kopf ends it cancels the tasks of connections; the next probe got no answer."""
    before = asyncio.all_tasks()
    for path in ("/healthz", "/readyz"):
        await pages.ask(path)
        for task in asyncio.all_tasks() - before:
            task.cancel()

        assert (await pages.ask(path))[1]


def test_the_kubelet_asks_the_page_of_each_probe(helm: Helm) -> None:
    text = helm(
        "template",
        "dl",
        str(CHART),
        "--kube-version=1.29.0",
        "--show-only=templates/deployment.yaml",
    )
    (container,) = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"]
    paths = {
        key.removesuffix("Probe"): value["httpGet"]["path"]
        for key, value in container.items()
        if key.endswith("Probe")
    }

    assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
