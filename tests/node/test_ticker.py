"""The ticks of a member: steady while it works, few while it is idle, right for every input."""

import asyncio
import math
from collections.abc import Callable

import pytest

from dledger_node.shell.clock import TICK_S
from dledger_node.shell.ticker import SLEEP_TICKS_MAX, WAKING_TICKS, Ticker


class TickedCore:
    """Counts ticks; it is idle for `idle` of them at a time."""

    def __init__(self, idle: int) -> None:
        self.idle = idle
        self.passed_ticks = 0
        self.ticks = 0

    def idle_ticks(self, *, before_timeout: int = 0) -> int:
        return max(0, self.idle - before_timeout)

    def pass_idle_ticks(self, count: int, elapsed_ticks: int) -> None:
        self.passed_ticks += count


class Member:
    """A ticker with its core, run for as long as a test looks at it."""

    def __init__(self, idle: int, at_rest_until_s: Callable[[], float] = lambda: math.inf) -> None:
        self.core = TickedCore(idle)
        self.ticked = asyncio.Event()
        self.ticker = Ticker(
            self.core, tick=self._tick, at_rest_until_s=at_rest_until_s, late=lambda _: None
        )
        self._running = asyncio.create_task(self.ticker.run())

    def _tick(self, elapsed_ticks: int) -> None:
        self.core.ticks += 1
        self.ticked.set()

    async def next_tick_s(self) -> float:
        """Return how long the next tick takes from now."""
        now_s = asyncio.get_running_loop().time
        began_s = now_s()
        self.ticked.clear()
        await self.ticked.wait()
        return now_s() - began_s

    async def stop(self) -> None:
        self._running.cancel()
        await asyncio.wait([self._running])


async def test_an_idle_member_sleeps_through_its_idle_ticks() -> None:
    member = Member(idle=1000)
    await member.next_tick_s()

    slept_s = await member.next_tick_s()
    await member.stop()

    assert slept_s >= SLEEP_TICKS_MAX * TICK_S / 2, "less by what the tick before came late"
    assert member.core.passed_ticks == SLEEP_TICKS_MAX


async def test_an_idle_member_wakes_before_a_timeout() -> None:
    member = Member(idle=WAKING_TICKS + 3)
    await member.next_tick_s()

    await member.next_tick_s()
    await member.stop()

    assert member.core.passed_ticks == 3


async def test_an_input_finds_the_ticks_of_the_sleep_passed() -> None:
    member = Member(idle=1000)
    await member.next_tick_s()
    woken_after_ticks = 5
    await asyncio.sleep((woken_after_ticks + 0.5) * TICK_S)

    member.ticker.wake()
    passed_ticks = member.core.passed_ticks
    to_next_tick_s = await member.next_tick_s()
    await member.stop()

    assert woken_after_ticks <= passed_ticks < SLEEP_TICKS_MAX
    assert to_next_tick_s < (SLEEP_TICKS_MAX - passed_ticks) * TICK_S


async def test_a_member_sleeps_again_after_an_input_that_leaves_no_work() -> None:
    member = Member(idle=1000)
    await member.next_tick_s()
    ticks = member.core.ticks
    await asyncio.sleep(5.5 * TICK_S)

    member.ticker.catch_up()
    passed_ticks = member.core.passed_ticks
    slept_s = await member.next_tick_s()
    await member.stop()

    assert 5 <= passed_ticks < SLEEP_TICKS_MAX / 2, "the core has the right time for its input"
    assert slept_s >= (SLEEP_TICKS_MAX / 2 - 1) * TICK_S
    assert member.core.ticks == ticks + 1
    assert member.core.passed_ticks == SLEEP_TICKS_MAX


async def test_inputs_that_leave_no_work_do_not_put_the_next_tick_off() -> None:
    """What a member watches without an event is seen after the longest sleep."""
    member = Member(idle=1000)
    await member.next_tick_s()
    ticks = member.core.ticks
    while member.core.ticks == ticks and member.core.passed_ticks <= 2 * SLEEP_TICKS_MAX:
        await asyncio.sleep(20 * TICK_S)
        member.ticker.catch_up()
    await member.stop()

    assert member.core.ticks > ticks
    assert member.core.passed_ticks < 2 * SLEEP_TICKS_MAX


async def test_a_member_ticks_after_an_input_that_leaves_work() -> None:
    busy = False
    member = Member(idle=1000, at_rest_until_s=lambda: -math.inf if busy else math.inf)
    await member.next_tick_s()
    await asyncio.sleep(2.5 * TICK_S)

    member.ticker.catch_up()
    busy = True
    to_next_tick_s = await member.next_tick_s()
    await member.stop()

    assert to_next_tick_s < SLEEP_TICKS_MAX * TICK_S / 2


async def test_the_input_of_a_client_in_the_same_turn_gets_a_tick_soon() -> None:
    """It may be handled in a later turn, and must not wait for the end of a sleep."""
    member = Member(idle=1000)
    await member.next_tick_s()
    await asyncio.sleep(2.5 * TICK_S)

    member.ticker.catch_up()
    member.ticker.wake()
    to_next_tick_s = await member.next_tick_s()
    await member.stop()

    assert to_next_tick_s < SLEEP_TICKS_MAX * TICK_S / 2


async def test_a_member_with_work_ticks_at_the_steady_rate() -> None:
    member = Member(idle=1000, at_rest_until_s=lambda: -math.inf)
    for _ in range(5):
        await member.next_tick_s()
    await member.stop()

    assert member.core.passed_ticks == 0


async def test_a_deadline_ends_the_sleep() -> None:
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + 8 * TICK_S
    member = Member(idle=1000, at_rest_until_s=lambda: deadline_s)

    while loop.time() < deadline_s:
        await member.next_tick_s()
    ended_s = loop.time()
    await member.stop()

    assert member.core.passed_ticks > 0
    assert ended_s - deadline_s == pytest.approx(0.0, abs=SLEEP_TICKS_MAX * TICK_S / 2)
