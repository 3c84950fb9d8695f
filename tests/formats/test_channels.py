"""Numbers and sequences in the 32 bits of a channel."""

from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.log.channels import (
    PRODUCERS_MAX,
    SEQUENCE_MAX,
    WINDOW,
    channel_of,
    number_of,
    sequence_near,
)

NUMBERS = st.integers(1, PRODUCERS_MAX)


@given(NUMBERS, st.integers(1, SEQUENCE_MAX), st.integers(-WINDOW, WINDOW))
def test_a_sequence_is_restored_from_its_low_bits_and_a_near_sequence(
    number: int, sequence: int, distance: int
) -> None:
    channel = channel_of(number, sequence)

    assert 0 < channel < 1 << 31, "the field is signed"
    assert number_of(channel) == number
    assert sequence_near(channel, sequence + distance) == sequence


def test_a_sequence_is_restored_up_to_half_the_low_bits_away() -> None:
    channel = channel_of(7, 100_000)

    assert sequence_near(channel, 100_000 - 32_767) == 100_000
    assert sequence_near(channel, 100_000 + 32_768) == 100_000
    assert sequence_near(channel, 100_000 - 32_768) == 100_000 - 65_536
    assert sequence_near(channel, 100_000 + 32_769) == 100_000 + 65_536
