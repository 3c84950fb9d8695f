"""The clock of retention: it follows time, and refuses implausible steps."""

import logging

import pytest

from dledger_node.volume.wall_clock import STEP_S_MAX, WallClock

HOUR_S = 3600.0
EPOCH_S = 1.8e9


class Machine:
    """A wall clock and a time since boot that the test moves."""

    def __init__(self) -> None:
        self.wall_s = EPOCH_S
        self.boot_s = 50.0
        self.clock = WallClock(lambda: self.wall_s, lambda: self.boot_s)

    def pass_time(self, duration_s: float, *, step_s: float = 0.0) -> float:
        """Let time pass and the wall clock step; return the clock's time after the epoch."""
        self.wall_s += duration_s + step_s
        self.boot_s += duration_s
        return self.clock.now_s() - EPOCH_S


def test_the_clock_follows_time_and_small_corrections() -> None:
    machine = Machine()

    assert machine.pass_time(1.0) == 1.0
    assert machine.pass_time(30 * 24 * HOUR_S) == 30 * 24 * HOUR_S + 1.0
    assert machine.pass_time(1.0, step_s=STEP_S_MAX - 1) == pytest.approx(
        30 * 24 * HOUR_S + 1.0 + STEP_S_MAX
    )


def test_a_step_forward_is_refused_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()

    with caplog.at_level(logging.WARNING):
        times_s = [machine.pass_time(1.0, step_s=1000 * HOUR_S)]
        times_s += [machine.pass_time(1.0) for _ in range(3)]

    assert times_s == pytest.approx([1.0, 2.0, 3.0, 4.0])
    assert machine.clock.refused_s == pytest.approx(1000 * HOUR_S)
    assert len(caplog.records) == 1
    assert "3600000 s ahead" in caplog.text


def test_several_steps_are_refused_together() -> None:
    machine = Machine()
    machine.pass_time(1.0, step_s=HOUR_S)

    assert machine.pass_time(1.0, step_s=HOUR_S) == pytest.approx(2.0)
    assert machine.clock.refused_s == pytest.approx(2 * HOUR_S)


def test_a_clock_that_is_set_right_again_is_believed(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    machine.pass_time(1.0, step_s=HOUR_S)

    assert machine.pass_time(1.0, step_s=-HOUR_S) == pytest.approx(2.0)
    assert machine.clock.refused_s == 0.0
    assert "plausible again" in caplog.text


def test_a_step_back_is_followed() -> None:
    machine = Machine()

    assert machine.pass_time(1.0, step_s=-5 * HOUR_S) == 1.0 - 5 * HOUR_S
    assert machine.pass_time(1.0) == 2.0 - 5 * HOUR_S


def test_a_clock_that_was_back_for_a_while_is_believed_when_it_is_right_again() -> None:
    """It counted as ahead until the member was restarted."""
    machine = Machine()
    machine.pass_time(10.0, step_s=-5 * HOUR_S)

    assert machine.pass_time(10.0, step_s=5 * HOUR_S) == pytest.approx(20.0)
    assert machine.clock.refused_s == 0.0


def test_a_clock_that_was_back_for_a_while_is_not_believed_beyond_where_it_would_be() -> None:
    machine = Machine()
    machine.pass_time(10.0, step_s=-5 * HOUR_S)

    assert machine.pass_time(10.0, step_s=6 * HOUR_S) == pytest.approx(20.0 - 5 * HOUR_S)
    assert machine.clock.refused_s == pytest.approx(6 * HOUR_S)
