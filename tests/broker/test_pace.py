"""When a broker looks after what waits, by a clock that only waiting moves."""

import asyncio
import math
from collections.abc import Awaitable, Callable

import pytest

from dledger_broker.pace import BUSY_S, IDLE_S, Pace
from dledger_sim.simulated_loop import SimulatedLoop

LOOKS = 8


def run(main: Callable[[], Awaitable[list[float]]]) -> list[float]:
    async def running() -> list[float]:
        return await main()

    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(100.03)) as runner:
        return runner.run(running())


async def looks_of(pace: Pace) -> list[float]:
    """Return the times at which looks were due."""
    loop = asyncio.get_running_loop()
    times_s = []
    for _ in range(LOOKS):
        await pace.next_look()
        times_s.append(loop.time())
    return times_s


def test_an_idle_broker_looks_at_times_that_it_has_in_common_with_its_member() -> None:
    times_s = run(lambda: looks_of(Pace(lambda: True, lambda: math.inf)))

    assert times_s == pytest.approx([100.25 + IDLE_S * number for number in range(LOOKS)])


def test_a_broker_in_which_something_waits_looks_often() -> None:
    times_s = run(lambda: looks_of(Pace(lambda: False, lambda: math.inf)))

    assert times_s == pytest.approx([100.03 + BUSY_S * number for number in range(1, LOOKS + 1)])


def test_an_idle_broker_looks_soon_after_something_has_come() -> None:
    async def main() -> list[float]:
        pace = Pace(lambda: True, lambda: math.inf)
        asyncio.get_running_loop().call_later(0.01, pace.hurry)
        return await looks_of(pace)

    assert run(main)[:2] == pytest.approx([100.04 + BUSY_S, 100.25])


def test_an_idle_broker_looks_when_something_is_due() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        return await looks_of(Pace(lambda: True, lambda: 100.111 - loop.time()))

    assert run(main)[0] == pytest.approx(100.111)


def test_a_broker_that_hurries_is_not_late_for_what_is_due() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        pace = Pace(lambda: True, lambda: 100.13 - loop.time())
        loop.call_later(0.09, pace.hurry)
        return await looks_of(pace)

    assert run(main)[0] == pytest.approx(100.13)


def test_what_comes_during_a_look_is_looked_after_soon() -> None:
    async def main() -> list[float]:
        pace = Pace(lambda: True, lambda: math.inf)
        pace.hurry()
        return await looks_of(pace)

    assert run(main)[0] == pytest.approx(100.03 + BUSY_S)


def test_what_is_overdue_does_not_keep_a_broker_looking_without_a_pause() -> None:
    times_s = run(lambda: looks_of(Pace(lambda: True, lambda: -1.0)))

    assert times_s == pytest.approx([100.03 + BUSY_S * number for number in range(1, LOOKS + 1)])
