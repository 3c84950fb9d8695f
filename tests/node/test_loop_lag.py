"""The time of each turn of the event loop is measured, wherever in the turn the work is."""

import asyncio
import time

import pytest
import uvloop

from dledger_node.histogram import Histogram
from dledger_node.shell.loop_lag import LoopLag
from dledger_wire.listener import until

LONG_S = 0.03


def work() -> None:
    """Use the processor for LONG_S."""
    end_s = time.thread_time() + LONG_S
    while time.thread_time() < end_s:
        pass


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> asyncio.Runner:
    return asyncio.Runner(loop_factory=request.param)


def test_work_in_the_turn_that_input_enters_is_measured(runner: asyncio.Runner) -> None:
    async def turn() -> LoopLag:
        lag = LoopLag()
        lag.begin_turn()
        work()
        await until(lambda: lag.turn_cpu_s.max > 0)
        return lag

    with runner:
        assert LONG_S <= runner.run(turn()).turn_cpu_s.max < 2 * LONG_S


def test_work_that_continues_in_a_later_turn_is_measured_by_itself(runner: asyncio.Runner) -> None:
    async def turns() -> LoopLag:
        lag = LoopLag()
        lag.begin_turn()
        work()
        await asyncio.sleep(0)
        work()
        await until(lambda: lag.turn_cpu_s.cumulative()[-1] >= 2)
        return lag

    with runner:
        lag = runner.run(turns())
    assert LONG_S <= lag.turn_cpu_s.max < 2 * LONG_S, "two turns, not one of twice the time"
    assert lag.turn_cpu_s.sum >= 2 * LONG_S


def test_a_loop_that_waits_for_input_is_not_kept_awake(runner: asyncio.Runner) -> None:
    async def idle() -> float:
        LoopLag().begin_turn()
        begun_s = time.thread_time()
        await asyncio.sleep(0.1)
        return time.thread_time() - begun_s

    with runner:
        assert runner.run(idle()) < 0.02


def test_waiting_is_no_processor_time(runner: asyncio.Runner) -> None:
    async def turn() -> LoopLag:
        lag = LoopLag()
        lag.begin_turn()
        time.sleep(LONG_S)  # noqa: ASYNC251 - a turn that blocks
        work()
        await until(lambda: lag.turn_cpu_s.max > 0)
        return lag

    with runner:
        assert runner.run(turn()).turn_cpu_s.max < 2 * LONG_S


def test_a_timer_that_fires_early_has_no_lag() -> None:
    lag = LoopLag()
    lag.timer_fired(-0.001)
    lag.timer_fired(0.3)

    assert (lag.lag_s.max, lag.lag_s.sum) == (0.3, 0.3)


def test_a_value_counts_in_the_bucket_of_its_bound_and_in_all_above() -> None:
    histogram = Histogram((1, 2, 4))
    for value in (1, 1.5, 9):
        histogram.observe(value)

    assert histogram.cumulative() == [1, 2, 2, 3]
    assert (histogram.sum, histogram.max) == (11.5, 9)
