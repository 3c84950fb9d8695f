"""Pauses between attempts: short at first, and always short relative to the elapsed time."""

from hypothesis import given
from hypothesis import strategies as st

from dledger_client.cluster.backoff import PAUSE_MAX_S, PAUSE_MIN_S, SHARE, pause_s


@given(gap_s=st.floats(0.001, 10), random=st.floats(0, 1))
def test_pauses_extend_an_outage_by_a_sixteenth_at_most(gap_s: float, random: float) -> None:
    now_s = 0.0
    while now_s < gap_s:
        now_s += pause_s(now_s, lambda: random)

    assert now_s <= gap_s * (1 + SHARE) + PAUSE_MIN_S


@given(elapsed_s=st.floats(0, 1e6), random=st.floats(0, 1))
def test_a_pause_stays_within_its_limits(elapsed_s: float, random: float) -> None:
    assert PAUSE_MIN_S / 2 <= pause_s(elapsed_s, lambda: random) <= PAUSE_MAX_S


def test_randomness_spreads_the_retries_of_clients_that_failed_together() -> None:
    assert pause_s(8.0, lambda: 0.0) == 2 * pause_s(8.0, lambda: 1.0)
