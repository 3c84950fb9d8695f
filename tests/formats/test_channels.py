"""Numbers and sequences in the 32 bits of a channel."""

from hypothesis import given
from hypothesis import strategies as st

from dledger_formats.log.channels import (
    PRODUCERS_MAX,
    SEQUENCE_MAX,
    WINDOW,
    ChannelRun,
    channel_of,
    channels_of,
    number_of,
    runs_of,
    sequence_near,
)

NORMAL, NOOP = 1, 2
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


CHANNELS = st.one_of(
    st.just(0),
    st.builds(
        channel_of, st.integers(1, 2), st.sampled_from([1, 2, 3, 65534, 65535, 65536, 65537])
    ),
)


@given(st.lists(CHANNELS, max_size=12), st.sampled_from([NORMAL, NOOP]), st.integers(0, 1 << 40))
def test_runs_contain_every_entry_with_a_channel_once(
    channels: list[int], magic: int, first_index: int
) -> None:
    found = [
        (run.first_index + at, channel_of(number_of(run.channel), run.channel + at))
        for run in runs_of(first_index, magic, channels)
        for at in range(run.length)
    ]

    assert found == [(index, each) for index, each in enumerate(channels, first_index) if each]


@given(NUMBERS, st.integers(1, SEQUENCE_MAX), st.integers(1, 300))
def test_consecutive_sequences_are_one_run_unless_their_low_bits_wrap(
    number: int, sequence: int, length: int
) -> None:
    channels = channels_of(number, sequence, length)
    wraps = sequence // 65536 != (sequence + length - 1) // 65536

    assert channels == [channel_of(number, sequence + at) for at in range(length)]
    assert len(list(runs_of(5, NORMAL, channels))) == 1 + wraps
    assert len(list(runs_of(5, NOOP, channels))) == length


@given(st.integers(1, 20), st.integers(-2, 24))
def test_the_rest_of_a_run_begins_with_any_of_its_entries(length: int, offset: int) -> None:
    run = ChannelRun(100, NORMAL, channel_of(3, 7), length)

    rest = run.runs_from(100 + offset)

    kept = range(max(0, offset), length)
    assert [(r.first_index, r.channel, r.length) for r in rest] == [
        (100 + kept.start, channel_of(3, 7 + kept.start), len(kept))
    ] * bool(kept)
