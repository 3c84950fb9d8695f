"""The numbers of drafts (docs/idempotent-appends.md): the log holds each of them once."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from dledger_formats.protocol.codes import DLedgerResponseCode
from dledger_node.store.derived.producers import Finding, Producers

_REPEATED: Final[Mapping[int | Finding, DLedgerResponseCode]] = {
    Finding.UNKNOWN_PRODUCER: DLedgerResponseCode.UNKNOWN_PRODUCER,
    Finding.TOO_OLD: DLedgerResponseCode.SEQUENCE_TOO_OLD,
    Finding.TOO_NEW: DLedgerResponseCode.SEQUENCE_TOO_NEW,
}


class Numbers(NamedTuple):
    """The numbers of the last bodies of a draft, one for each; the bodies before have none."""

    producer: int
    """The identity of a registered producer."""
    sequences: Sequence[int]


class NumbersCheck:
    """Looks up the numbers of the drafts of one proposal, in their order."""

    def __init__(self, producers: Producers) -> None:
        self._find = producers.find
        self._taken: set[tuple[int, int]] = set()

    def refusal(self, numbers: Numbers | None) -> DLedgerResponseCode | None:
        """Return why a draft with these numbers may not be written; None if it may."""
        if numbers is None:
            return None
        keys = [(numbers.producer, sequence) for sequence in numbers.sequences]
        found = {self._find(*key) for key in keys} - {Finding.NEW}
        if found:
            return _REPEATED.get(found.pop(), DLedgerResponseCode.SEQUENCES_NOT_NEW)
        if not self._taken.isdisjoint(keys):
            return DLedgerResponseCode.SEQUENCES_NOT_NEW
        self._taken.update(keys)
        return None


def channels_of(
    drafts: Sequence[tuple[int, Numbers | None]], producers: Producers
) -> list[int] | None:
    """Return the channels of all bodies; None if none has a number. `drafts` are the number of
    bodies and the numbers of each.
    """
    if not any(numbers for _, numbers in drafts):
        return None
    channels: list[int] = []
    for count, numbers in drafts:
        sequences = () if numbers is None else numbers.sequences
        channels += [0] * (count - len(sequences))
        if numbers is not None:
            channels += [producers.channel(numbers.producer, sequence) for sequence in sequences]
    return channels
