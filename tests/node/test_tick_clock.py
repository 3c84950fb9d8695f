"""The clock of a member: steady ticks, and what becomes of those that a pause has lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_node.shell.clock import CATCH_UP_TICKS_MAX, TICK_S, TickClock


def run_until(clock: TickClock, end_s: float) -> list[int]:
    """Call every tick that is due before `end_s` on time; return what they report."""
    elapsed = []
    while clock.due_s <= end_s:
        elapsed.append(clock.tick(clock.due_s))
    return elapsed


def test_a_steady_clock_counts_every_tick() -> None:
    elapsed = run_until(TickClock(100.0), 101.0)

    assert len(elapsed) == pytest.approx(1.0 / TICK_S, abs=1)
    assert sum(elapsed) == pytest.approx(len(elapsed), abs=1)


def test_after_a_pause_few_ticks_are_caught_up_and_all_of_the_time_is_reported() -> None:
    clock = TickClock(0.0)

    first = clock.tick(5.0)
    caught_up = 0
    while clock.due_s <= 5.0:
        caught_up += 1
        assert clock.tick(5.0) == 0

    assert first == pytest.approx(5.0 / TICK_S, abs=1)
    assert caught_up == CATCH_UP_TICKS_MAX + 1


def test_a_loop_of_long_turns_still_reports_all_of_the_time() -> None:
    clock = TickClock(0.0)

    elapsed = [clock.tick(turn * 0.5) for turn in range(1, 21)]

    assert sum(elapsed) == pytest.approx(10.0 / TICK_S, abs=1)


def test_a_sleep_ends_on_the_steady_rate() -> None:
    clock = TickClock(0.0)
    clock.sleep(10)

    assert clock.due_s == pytest.approx(11 * TICK_S)
    assert clock.wake(4.5 * TICK_S) == (4, 4)
    assert clock.due_s == pytest.approx(5 * TICK_S)


@given(steps=st.lists(st.tuples(st.integers(0, 30), st.floats(0.0, 40.0)), min_size=1, max_size=60))
def test_no_time_is_lost_however_a_member_sleeps_and_wakes(
    steps: list[tuple[int, float]],
) -> None:
    clock, now_s, ticks, elapsed = TickClock(0.0), 0.0, 0, 0
    for idle_ticks, woken_after_ticks in steps:
        clock.sleep(idle_ticks)
        now_s = max(now_s, min(clock.due_s, now_s + woken_after_ticks * TICK_S))
        passed, waited = clock.wake(now_s)
        assert 0 <= passed <= idle_ticks
        now_s = max(now_s, clock.due_s)
        ticks, elapsed = ticks + passed + 1, elapsed + waited + clock.tick(now_s)

    assert ticks == pytest.approx(now_s / TICK_S, abs=1 + 1e-9)
    assert elapsed == pytest.approx(now_s / TICK_S, abs=1 + 1e-9)
