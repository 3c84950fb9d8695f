"""One producer: how appends are noted for it, and how that is undone. No IO."""

from array import array
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from dledger_formats.log.channels import ChannelRun

NOT_NOTED: Final = -1


@dataclass(slots=True, kw_only=True)
class Producer:
    """A client that numbers its appends."""

    identity: int
    """Index of its registration."""
    number: int
    last_index: int
    """Index of its last entry, or of its registration."""
    highest: int = 0
    """Its highest sequence; 0 before the first append."""
    indexes: "array[int]" = field(default_factory=lambda: array("q"))
    """Index in the log by sequence % window, for the sequences (highest - window, highest];
    NOT_NOTED for a sequence that is not in the log. Empty before the first append.
    """


class Undo(NamedTuple):
    """The data to undo a run: for appends, the producer's values before them."""

    run: ChannelRun
    producer: Producer
    """The producer of the appends, or the producer that the registration created."""
    replaced: Producer | None
    """The producer that the registration dropped."""
    highest: int = 0
    last_index: int = 0
    sequence: int = 0
    """The first sequence of the run."""
    noted: "array[int] | None" = None
    """The previous values at the places of the run."""
    indexes: "array[int] | None" = None
    """The whole previous array, if the run skipped sequences."""


def copy_of(producer: Producer) -> Producer:
    """Return a copy that shares nothing with the producer."""
    return replace(producer, indexes=producer.indexes[:])


def note_appends(producer: Producer, run: ChannelRun, sequence: int, window: int) -> Undo | None:
    """Note appends from `sequence` on: one, or several that are above the highest.

    Returns None, and changes nothing, if no leader appends such an entry.
    """
    highest, indexes = producer.highest, producer.indexes
    above = sequence - highest
    if sequence < 1 or above <= -window:
        return None
    if above <= 0 and indexes[sequence % window] != NOT_NOTED:
        return None  # the first of the two counts
    before, last_index = None, producer.last_index
    if above > 1 or not indexes:
        before = indexes[:]
        indexes.extend([NOT_NOTED] * (window - len(indexes)))
        for skipped in range(max(highest, sequence - window) + 1, sequence):
            indexes[skipped % window] = NOT_NOTED
    run_indexes = array("q", range(run.first_index, run.last_index + 1))
    noted = _swap(indexes, sequence % window, run_indexes)
    producer.last_index = run.last_index
    producer.highest = max(highest, sequence + run.length - 1)
    return Undo(run, producer, None, highest, last_index, sequence, noted, before)


def undo_appends(producer: Producer, undo: Undo, window: int) -> None:
    """Undo appends of a producer, or of a copy of it."""
    if undo.indexes is not None:
        producer.indexes = undo.indexes[:]
    elif undo.noted is not None:
        _swap(producer.indexes, undo.sequence % window, undo.noted)
    producer.highest, producer.last_index = undo.highest, undo.last_index


def _swap(ring: "array[int]", place: int, values: "array[int]") -> "array[int]":
    """Write values into a ring from a place on, and return the previous ones."""
    end = place + len(values)
    wrapped = end - len(ring)
    if wrapped <= 0:
        previous = ring[place:end]
        ring[place:end] = values
        return previous
    previous = ring[place:] + ring[:wrapped]
    ring[place:] = values[:-wrapped]
    ring[:wrapped] = values[-wrapped:]
    return previous
