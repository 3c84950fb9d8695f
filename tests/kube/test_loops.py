"""How a behaviour runs."""

import asyncio
import contextlib
import logging
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_operator.behaviours.loops import Pace, Wake, backoff_s, repeat
from dledger_operator.clients.errors import UnavailableError

NEVER = Pace(interval_s=3600.0, gap_s=0.0, failure_gap_s_max=0.01)
WAIT_S = 10.0


class Turns:
    """A behaviour that does what a script says, and counts."""

    def __init__(self, *script: Exception | None) -> None:
        self.script = list(script)
        self.taken = 0
        self.failures = 0
        self.happened = asyncio.Event()

    async def take(self) -> None:
        self.taken += 1
        self.happened.set()
        outcome = self.script.pop(0) if self.script else None
        if outcome is not None:
            raise outcome

    def failed(self) -> None:
        self.failures += 1

    async def until(self, count: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while self.taken < count:
                self.happened.clear()
                await self.happened.wait()


@contextlib.asynccontextmanager
async def running(turns: Turns, wake: Wake, pace: Pace = NEVER):  # type: ignore[no-untyped-def]
    task = asyncio.create_task(
        repeat(
            turns.take,
            what="the behaviour",
            wake=wake,
            pace=pace,
            random=Random(1),
            on_failure=turns.failed,
        )
    )
    yield task
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_turn_is_taken_at_once_and_again_when_woken() -> None:
    turns, wake = Turns(), Wake()
    async with running(turns, wake):
        await turns.until(1)
        wake.set()
        await turns.until(2)

    assert turns.taken == 2


async def test_a_turn_is_taken_again_when_its_time_has_come() -> None:
    turns = Turns()
    async with running(turns, Wake(), Pace(interval_s=0.01, gap_s=0.0)):
        await turns.until(3)


async def test_many_wakes_during_one_turn_are_one_more_turn() -> None:
    turns, wake = Turns(), Wake()
    for _ in range(100):
        wake.set()
    async with running(turns, wake):
        await turns.until(2)

    assert turns.taken == 2


async def test_a_failure_is_counted_and_the_turn_taken_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    turns = Turns(UnavailableError("no answer"), None)
    with caplog.at_level(logging.WARNING):
        async with running(turns, Wake()):
            await turns.until(2)

    assert turns.failures == 1
    assert "the behaviour: no answer" in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_mistake_of_ours_is_logged_with_its_trace_and_survived(
    caplog: pytest.LogCaptureFixture,
) -> None:
    turns = Turns(ZeroDivisionError("oops"), None)
    async with running(turns, Wake()):
        await turns.until(2)

    assert "Traceback" in caplog.text


async def test_it_ends_when_there_is_nothing_left_to_do() -> None:
    turns = Turns()
    async with asyncio.timeout(WAIT_S):
        await repeat(
            turns.take,
            what="it",
            wake=Wake(),
            pace=Pace(interval_s=0.0, gap_s=0.0),
            random=Random(1),
            on_failure=turns.failed,
            until=lambda: turns.taken == 3,
        )

    assert turns.taken == 3


async def test_a_bell_that_was_rung_before_is_heard() -> None:
    wake = Wake()
    wake.set()

    assert await wake.wait(3600.0)
    assert not await wake.wait(0.0)


@given(failures=st.integers(1, 10_000), seed=st.integers())
def test_a_pause_grows_and_stays_in_its_bounds(failures: int, seed: int) -> None:
    pause_s = backoff_s(failures, 0.05, 30.0, Random(seed))

    assert 0.025 <= pause_s <= 30.0
    assert failures < 12 or pause_s >= 15.0
