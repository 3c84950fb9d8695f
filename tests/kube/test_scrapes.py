"""A scrape of the operator's metrics does not hold up the loop that follows leaders."""

import asyncio
import threading
import time
from collections.abc import Iterator

import aiohttp
import pytest
from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector

from dledger_kube.objects import NOW, observed_group
from dledger_operator.conditions import of_group
from dledger_operator.main import serve_metrics
from dledger_operator.metrics import OperatorMetrics
from dledger_wire.families import needs_ipv6
from tools.groups.ports import free_ports

WAIT_S = 60.0


@pytest.fixture
def port() -> int:
    return next(free_ports())


class Slow(Collector):
    """Metrics that are complete only after the loop has taken a turn."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.may_end = threading.Event()
        self.in_time = False

    def collect(self) -> Iterator[Metric]:
        self.began.set()
        self.in_time = self.may_end.wait(WAIT_S)
        return iter(())


async def test_the_loop_goes_on_while_a_page_is_made(port: int) -> None:
    metrics, slow = OperatorMetrics(clock=time.monotonic), Slow()
    metrics.registry.register(slow)

    async def let_it_end() -> None:
        await asyncio.to_thread(slow.began.wait, WAIT_S)
        slow.may_end.set()

    async with serve_metrics(metrics, port), aiohttp.ClientSession() as session:
        turns = asyncio.create_task(let_it_end())
        async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            assert "dledger_operator_lease_held" in await answer.text()
        await turns

    assert slow.in_time, "the loop stood still until the page was made"


async def test_a_connection_serves_one_scrape(port: int) -> None:
    """When kopf ends it cancels the tasks of connections; the next scrape got no answer."""
    metrics = OperatorMetrics(clock=time.monotonic)
    async with serve_metrics(metrics, port), aiohttp.ClientSession() as session:
        before = asyncio.all_tasks()
        url = f"http://127.0.0.1:{port}/metrics"
        async with session.get(url) as answer:
            await answer.text()
        for task in asyncio.all_tasks() - before:
            task.cancel()
        async with asyncio.timeout(WAIT_S), session.get(url) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("[::1]", marks=needs_ipv6)])
async def test_a_page_is_served_at_addresses_of_both_families(host: str, port: int) -> None:
    metrics = OperatorMetrics(clock=time.monotonic)
    async with (
        serve_metrics(metrics, port),
        aiohttp.ClientSession() as session,
        session.get(f"http://{host}:{port}/metrics") as answer,
    ):
        assert answer.status == 200


def test_a_page_is_made_while_groups_come_and_go() -> None:
    metrics = OperatorMetrics(clock=time.monotonic)
    ends = threading.Event()
    failed: list[BaseException] = []

    def scrape() -> None:
        try:
            while not ends.is_set():
                generate_latest(metrics.registry)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=scrape)
    thread.start()
    for turn in range(400):
        observed = observed_group(name=f"group-{turn % 20}")
        metrics.update_group(observed, of_group.build(observed, previous=(), now=NOW, generation=1))
        metrics.count_leader_change("air", observed.name, f"reason-{turn}")
        metrics.remove_group("air", f"group-{(turn + 7) % 20}")
    ends.set()
    thread.join(WAIT_S)

    assert not thread.is_alive()
    assert failed == []
