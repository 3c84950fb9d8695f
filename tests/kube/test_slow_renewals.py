"""Leases at an API server that answers late: a holder that is only slow keeps its Lease."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from random import Random

import pytest

from dledger_kube.lease_store import LeaseStore
from dledger_operator.behaviors.leases.duties import REPLICA_TERMS
from dledger_operator.behaviors.leases.lease_keeper import LeaseKeeper
from dledger_sim.simulated_loop import SimulatedLoop

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EARLIER_TERMS = replace(REPLICA_TERMS, renew_s=0.8, request_s_max=1.5)
HANGS_S = 60.0
Latency = Callable[[], float]


class SlowServer(LeaseStore):
    """An API server whose requests take effect in the middle of their latency."""

    def __init__(self, latency: Latency) -> None:
        super().__init__()
        self._latency = latency

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        half_s = self._latency() / 2
        await asyncio.sleep(half_s)
        yield
        await asyncio.sleep(half_s)


class EarlierKeeper(LeaseKeeper):
    """The rule of before: every pause is 0.8 s and begins at the end of a turn."""

    async def turn(self) -> float:
        await super().turn()
        return EARLIER_TERMS.look_s


def changes_of_held(latency: Latency, seconds: float, *, earlier: bool = False) -> list[bool]:
    """Let a keeper run for a while. Return what `held` was at each of its changes."""
    changes: list[bool] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        keeper = (EarlierKeeper if earlier else LeaseKeeper)(
            SlowServer(latency),
            namespace="system",
            name="operator",
            holder="a",
            terms=EARLIER_TERMS if earlier else REPLICA_TERMS,
            clock=loop.time,
            now=lambda: NOW,
            on_change=lambda: changes.append(keeper.held),
        )
        task = asyncio.create_task(keeper.run())
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(run())
    return changes


def settling(later: Latency) -> Latency:
    """Return a latency that is short until the Lease was taken, and another one from then on."""
    requests = 0

    def latency() -> float:
        nonlocal requests
        requests += 1
        return 0.1 if requests <= 2 else later()

    return latency


@pytest.mark.parametrize("latency_s", [0.0, 0.3, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.79])
def test_a_lease_is_taken_and_kept_at_any_latency_below_that_of_a_look(latency_s: float) -> None:
    """Taking it needs two requests, a GET and a write, within `request_s_max`."""
    assert changes_of_held(lambda: latency_s, 600.0) == [True]


@pytest.mark.parametrize("latency_s", [0.8, 0.9, 1.0, 1.2, 1.5])
def test_a_lease_that_is_held_is_kept_when_the_api_server_becomes_slow(latency_s: float) -> None:
    assert changes_of_held(settling(lambda: latency_s), 600.0) == [True]


@pytest.mark.parametrize("seed", range(10))
def test_latencies_that_vary_lapse_no_lease(seed: int) -> None:
    random = Random(seed)

    assert changes_of_held(settling(lambda: random.uniform(0.5, 1.0)), 600.0) == [True]


@pytest.mark.parametrize(
    ("latency_s", "hang_share"),
    [
        *((latency_s, 0.0) for latency_s in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)),
        *((latency_s, 0.02) for latency_s in (0.005, 0.02, 0.1, 0.2)),
        *((latency_s, 0.1) for latency_s in (0.005, 0.02, 0.1, 0.2)),
    ],
)
def test_no_more_leases_lapse_than_with_more_frequent_renewals(
    latency_s: float, hang_share: float
) -> None:
    """Some requests are never answered, and the others take a little more or less time. At higher
    latencies each request that is not answered lapses the Lease, as it did.
    """

    def lapses(earlier: bool) -> int:
        random = Random(1)

        def latency() -> float:
            if random.random() < hang_share:
                return HANGS_S
            return latency_s * random.uniform(0.9, 1.1)

        changes = changes_of_held(settling(latency), 2000.0, earlier=earlier)
        return changes.count(False)

    assert lapses(earlier=False) <= lapses(earlier=True)
