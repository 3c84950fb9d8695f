"""Pauses: short at first, never long compared with what has passed."""

from hypothesis import given
from hypothesis import strategies as st

from dledger_client.cluster.backoff import PAUSE_MAX_S, PAUSE_MIN_S, SHARE, pause_s


@given(gap_s=st.floats(0.001, 10), random=st.floats(0, 1))
def test_asking_again_after_each_pause_finds_the_end_of_a_gap_a_sixteenth_late_at_most(
    gap_s: float, random: float
) -> None:
    now_s = 0.0
    while now_s < gap_s:
        now_s += pause_s(now_s, lambda: random)

    assert now_s <= gap_s * (1 + SHARE) + PAUSE_MIN_S


@given(elapsed_s=st.floats(0, 1e6), random=st.floats(0, 1))
def test_a_pause_has_bounds(elapsed_s: float, random: float) -> None:
    assert PAUSE_MIN_S / 2 <= pause_s(elapsed_s, lambda: random) <= PAUSE_MAX_S


def test_clients_that_failed_together_do_not_come_back_together() -> None:
    assert pause_s(8.0, lambda: 0.0) == 2 * pause_s(8.0, lambda: 1.0)
