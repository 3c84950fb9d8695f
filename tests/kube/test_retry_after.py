"""What the API server asks for with Retry-After is done by whatever asks it again."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from random import Random
from typing import Any

import httpx2
import pytest
from lightkube import ApiError

from dledger_kube.lease_store import LeaseStore
from dledger_operator.api_patience import EndlessBackoffs, keep_trying
from dledger_operator.behaviors.leases.duties import NAMESPACE_TERMS, REPLICA_TERMS
from dledger_operator.behaviors.leases.lease_keeper import LeaseKeeper
from dledger_operator.behaviors.leases.lease_turn import LeaseTerms
from dledger_operator.clients import connection
from dledger_operator.clients.errors import UnavailableError
from dledger_sim.simulated_loop import SimulatedLoop

TEXT = "Too many requests, please try again later."
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ASKED_S = 7.0
OUTAGE_S = 300.0


def answer(**content: object) -> httpx2.HTTPStatusError:
    """Return what the library raises for a 429 with this content."""
    request = httpx2.Request("GET", "http://server")
    response = httpx2.Response(429, headers={"Retry-After": "7"}, request=request, **content)  # type: ignore[arg-type]
    if "json" in content:
        return ApiError(request=request, response=response)
    return httpx2.HTTPStatusError(TEXT, request=request, response=response)


@pytest.mark.parametrize(
    "error",
    [answer(json={"code": 429, "message": TEXT}), answer(text=TEXT)],
    ids=["a status object", "plain text, as an overloaded server answers"],
)
def test_the_header_is_read_from_every_form_of_the_answer(error: Exception) -> None:
    with (
        pytest.raises(UnavailableError, match="list pods: Too many") as raised,
        connection.translated("list pods"),
    ):
        raise error

    assert raised.value.retry_after_s == ASKED_S


def in_simulated_time(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(work)


def test_an_attempt_is_repeated_no_sooner_than_it_was_asked_for() -> None:
    times_s: list[float] = []

    async def attempt() -> None:
        times_s.append(asyncio.get_running_loop().time())
        if len(times_s) < 5:
            raise UnavailableError("busy", retry_after_s=ASKED_S)

    in_simulated_time(keep_trying(attempt, what="the server", backoffs=EndlessBackoffs(Random(1))))

    pauses_s = [after - before for before, after in itertools.pairwise(times_s)]
    assert pauses_s == pytest.approx([ASKED_S] * 4)


class BusyServer(LeaseStore):
    """An API server that refuses requests with Retry-After for a while."""

    def __init__(self, asked_s: float, busy: Callable[[float], bool]) -> None:
        super().__init__()
        self.asked_s = asked_s
        self.busy = busy
        self.refused_s: list[float] = []

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        now_s = asyncio.get_running_loop().time()
        if self.busy(now_s):
            self.refused_s.append(now_s)
            raise UnavailableError("busy", retry_after_s=self.asked_s)
        yield


def changes_of_held(server: BusyServer, terms: LeaseTerms, seconds: float) -> list[bool]:
    """Let a keeper run for a while. Return what `held` was at each of its changes."""
    changes: list[bool] = []

    async def run() -> None:
        keeper = LeaseKeeper(
            server,
            namespace="system",
            name="operator",
            holder="a",
            terms=terms,
            clock=asyncio.get_running_loop().time,
            now=lambda: NOW,
            on_change=lambda: changes.append(keeper.held),
        )
        task = asyncio.create_task(keeper.run())
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    in_simulated_time(run())
    return changes


@pytest.mark.parametrize("asked_s", [3.0, 20.0, 60.0])
def test_who_waits_for_a_lease_waits_as_long_as_it_is_asked_to(asked_s: float) -> None:
    server = BusyServer(asked_s, lambda now_s: now_s < OUTAGE_S)

    assert changes_of_held(server, REPLICA_TERMS, OUTAGE_S + 2 * asked_s) == [True]
    assert len(server.refused_s) <= OUTAGE_S / asked_s + 1


@pytest.mark.parametrize("terms", [REPLICA_TERMS, NAMESPACE_TERMS], ids=["replica", "namespace"])
def test_a_holder_that_is_asked_to_wait_longer_than_it_holds_tries_a_few_times_in_between(
    terms: LeaseTerms,
) -> None:
    """It would lapse for nothing if the server was busy for a moment only."""
    server = BusyServer(60.0, lambda now_s: 1.0 < now_s < OUTAGE_S)

    assert changes_of_held(server, terms, OUTAGE_S + 60.0) == [True, False, True]
    while_held = [each for each in server.refused_s if each < terms.hold_s]
    assert 2 <= len(while_held) <= 8
    assert len(server.refused_s) <= len(while_held) + OUTAGE_S / 60.0 + 1


@pytest.mark.parametrize("asked_s", [1.0, 2.0, 60.0])
def test_a_busy_moment_lapses_no_lease(asked_s: float) -> None:
    server = BusyServer(asked_s, lambda now_s: 1.0 < now_s < 2.0)

    assert changes_of_held(server, REPLICA_TERMS, 100.0) == [True]
