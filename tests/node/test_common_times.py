"""Work that is repeated at intervals is due at common times, once in each interval."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger_node.common_times import wait_s

times = st.floats(min_value=0, max_value=1e7)
intervals = st.sampled_from([0.2, 1.0, 5.0])


@given(times, intervals)
def test_a_wait_ends_at_a_common_time(now_s: float, interval_s: float) -> None:
    end_s = now_s + wait_s(now_s, interval_s)

    assert end_s / interval_s == pytest.approx(round(end_s / interval_s), abs=1e-6)


@given(times, intervals)
def test_a_wait_takes_half_an_interval_at_least_and_less_than_two(
    now_s: float, interval_s: float
) -> None:
    assert interval_s / 2 <= wait_s(now_s, interval_s) < 2 * interval_s


@pytest.mark.parametrize("early_s", [0.0, 1e-9, 1e-4])
def test_a_timer_that_fires_early_does_not_fire_twice(early_s: float) -> None:
    assert wait_s(7.0 - early_s, 1.0) == pytest.approx(1.0 + early_s)
