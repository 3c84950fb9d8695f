"""The control loop of a behavior."""

import asyncio
import contextlib
import logging
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_operator.behaviors import loops
from dledger_operator.behaviors.loops import (
    GROUP_PACES,
    TICK_S,
    Pace,
    Wake,
    backoff_s,
    repeat,
    wait_s,
)
from dledger_operator.clients.errors import UnavailableError

NEVER = Pace(interval_s=3600.0, gap_s=0.0, failure_gap_s_max=0.01)
WAIT_S = 10.0


TICKS = 20
"""Rounds of the event loop in which an unwanted run would start."""


class Runs:
    """A behavior that follows a script and counts its runs."""

    def __init__(self, *script: Exception | None) -> None:
        self.script = list(script)
        self.count = 0
        self.failures = 0
        self.began_s: list[float] = []
        self.happened = asyncio.Event()

    async def run(self) -> None:
        self.count += 1
        self.began_s.append(asyncio.get_running_loop().time())
        self.happened.set()
        outcome = self.script.pop(0) if self.script else None
        if outcome is not None:
            raise outcome

    def failed(self, _: Exception) -> None:
        self.failures += 1

    async def until(self, count: int) -> None:
        """Wait for this number of runs, and long enough to notice one too many."""
        async with asyncio.timeout(WAIT_S):
            while self.count < count:
                self.happened.clear()
                await self.happened.wait()
        for _ in range(TICKS):
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def running(runs: Runs, wake: Wake, pace: Pace = NEVER):  # type: ignore[no-untyped-def]
    task = asyncio.create_task(
        repeat(
            runs.run,
            what="the loop",
            wake=wake,
            pace=pace,
            random=Random(1),
            on_failure=runs.failed,
        )
    )
    yield task
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_behavior_runs_at_once_and_again_when_woken() -> None:
    runs, wake = Runs(), Wake()
    async with running(runs, wake):
        await runs.until(1)
        wake.set()
        await runs.until(2)

    assert runs.count == 2


async def test_a_behavior_runs_again_after_its_interval() -> None:
    runs = Runs()
    async with running(runs, Wake(), Pace(interval_s=0.01, gap_s=0.0)):
        await runs.until(3)


@given(
    st.sampled_from([*GROUP_PACES.values()]),
    st.floats(0, 1e7),
    st.floats(0, TICK_S, exclude_max=True),
)
def test_an_interval_on_ticks_ends_on_the_last_one_within_it_or_a_phase_later(
    pace: Pace, now_s: float, phase_s: float
) -> None:
    waits_s = wait_s(pace, now_s, phase_s)
    ticks = (now_s + waits_s - phase_s) / TICK_S

    if pace.on_tick:
        assert pace.interval_s - TICK_S < waits_s <= pace.interval_s
        assert abs(ticks - round(ticks)) < 1e-6
    else:
        assert waits_s == pace.interval_s


async def test_loops_that_began_at_different_times_run_again_in_one_wake_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wake costs more than most runs, so an operator with many groups shares them."""
    monkeypatch.setattr(loops, "TICK_S", 1.0)
    pace, first, second = Pace(interval_s=1.0, gap_s=0.01, on_tick=True), Runs(), Runs()
    await asyncio.sleep(1 - asyncio.get_running_loop().time() % 1)
    async with running(first, Wake(), pace):
        await asyncio.sleep(0.1)
        async with running(second, Wake(), pace):
            await first.until(2)
            await second.until(2)

    apart_s = second.began_s[0] - first.began_s[0]
    assert apart_s >= 0.1
    assert abs(second.began_s[1] - first.began_s[1]) < apart_s / 2


async def test_many_wake_ups_during_a_run_cause_one_more_run() -> None:
    runs, wake = Runs(), Wake()
    for _ in range(100):
        wake.set()
    async with running(runs, wake):
        await runs.until(2)

    assert runs.count == 2


async def test_a_failed_run_is_counted_logged_and_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runs = Runs(UnavailableError("no answer"), None)
    with caplog.at_level(logging.WARNING):
        async with running(runs, Wake()):
            await runs.until(2)

    assert runs.failures == 1
    assert "the loop: no answer" in caplog.text
    assert "Traceback" not in caplog.text


async def test_an_unexpected_error_is_logged_with_its_traceback_and_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runs = Runs(ZeroDivisionError("oops"), None)
    async with running(runs, Wake()):
        await runs.until(2)

    assert "Traceback" in caplog.text


async def test_the_loop_ends_when_its_condition_holds() -> None:
    runs = Runs()
    async with asyncio.timeout(WAIT_S):
        await repeat(
            runs.run,
            what="it",
            wake=Wake(),
            pace=Pace(interval_s=0.0, gap_s=0.0),
            random=Random(1),
            on_failure=runs.failed,
            until=lambda: runs.count == 3,
        )

    assert runs.count == 3


async def test_a_signal_before_the_wait_is_not_lost() -> None:
    wake = Wake()
    wake.set()

    assert await wake.wait(3600.0)
    assert not await wake.wait(0.0)


@given(failures=st.integers(1, 10_000), seed=st.integers())
def test_the_backoff_grows_within_its_bounds(failures: int, seed: int) -> None:
    pause_s = backoff_s(failures, 0.05, 30.0, Random(seed))

    assert 0.025 <= pause_s <= 30.0
    assert failures < 12 or pause_s >= 15.0


async def test_a_loop_is_busy_only_while_its_turn_lasts() -> None:
    """A pause, also the one after a failure, is no turn that does not end."""
    for script in ([], [UnavailableError("down", retry_after_s=60.0)]):
        runs, wake = Runs(*script), Wake()
        busy: list[float | None] = []

        async def run(
            runs: Runs = runs, wake: Wake = wake, busy: list[float | None] = busy
        ) -> None:
            busy.append(wake.busy_since_s)
            await runs.run()

        task = asyncio.create_task(
            repeat(
                run, what="test", wake=wake, pace=NEVER, random=Random(1), on_failure=runs.failed
            )
        )
        await runs.until(1)
        assert busy[0] is not None
        assert wake.busy_since_s is None
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
