"""The sequences of one registration of a producer."""

from dledger_formats.log.channels import WINDOW
from dledger_formats.protocol.sequences import Sequences


def test_a_window_limits_the_sequences_below_and_above() -> None:
    sequences = Sequences(7)
    taken = [sequences.take() for _ in range(WINDOW)]
    assert taken == list(range(1, WINDOW + 1))
    assert not sequences.has_room()
    assert not sequences.is_exhausted()

    sequences.resolve(2, acknowledged=True)
    assert not sequences.has_room(), "the first is unresolved and must stay in the window"
    sequences.resolve(1, acknowledged=False)

    assert sequences.has_room()
    assert [sequences.take(), sequences.take()] == [WINDOW + 1, WINDOW + 2]
    assert not sequences.has_room(), "2 is the highest acknowledged sequence"


def test_sequences_are_exhausted_if_a_whole_window_had_no_effect() -> None:
    sequences = Sequences(7)
    for _ in range(WINDOW):
        sequences.resolve(sequences.take(), acknowledged=False)

    assert sequences.is_exhausted()


def test_an_acknowledgement_advances_the_window() -> None:
    sequences = Sequences(7)
    for _ in range(10 * WINDOW):
        assert sequences.has_room()
        sequences.resolve(sequences.take(), acknowledged=True)


def test_a_batch_takes_consecutive_sequences_that_fit_the_window_together() -> None:
    sequences = Sequences(7)

    assert [sequences.take(600), sequences.take()] == [1, 601]
    assert sequences.has_room(WINDOW - 601)
    assert not sequences.has_room(WINDOW - 600)


def test_a_batch_is_resolved_as_a_whole() -> None:
    sequences = Sequences(7)
    sequences.take(WINDOW)

    sequences.resolve(1, WINDOW, acknowledged=True)

    assert sequences.take(WINDOW) == WINDOW + 1
