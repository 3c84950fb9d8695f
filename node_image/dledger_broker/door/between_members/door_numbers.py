"""The numbers under which this member sends messages to the leader. No IO, no clock.

A member registers a producer with the group when it first needs one, and up to 8 of them when many
messages are on their way. It numbers each message, and sends it to the next leader under the same
number if the leader is lost. So the message is in the log once (docs/idempotent-appends.md).
"""

from typing import Final, NamedTuple

from dledger_formats.log.channels import WINDOW
from dledger_formats.protocol.sequences import Sequences

REGISTRATIONS_MAX: Final = 8
COUNT_MAX: Final = WINDOW
"""The most numbers that one request can have."""


class Number(NamedTuple):
    """The numbers of one request's messages: consecutive ones of one producer."""

    producer: int
    """The producer's identity."""
    sequence: int
    """The first of the numbers."""
    messages: int
    """How many there are."""


class DoorNumbers:
    """The registrations of this member, and which of their numbers are on their way."""

    def __init__(self) -> None:
        self._registrations: dict[int, Sequences] = {}
        self._last = -1
        """The producer that gave the last numbers."""

    def take(self, count: int) -> Number | None:
        """Return the next numbers; None if no registration has room for them now."""
        sequences = self._registrations.get(self._last)
        if sequences is None or not sequences.has_room(count):
            every = self._registrations.values()
            sequences = next((each for each in every if each.has_room(count)), None)
            if sequences is None:
                return None
            self._last = sequences.producer_id
        return Number(sequences.producer_id, sequences.take(count), count)

    def needs_registration(self, count: int) -> bool:
        """Return whether another registration would help a request with `count` messages."""
        for producer, sequences in list(self._registrations.items()):
            if sequences.is_exhausted(count):
                del self._registrations[producer]
        return len(self._registrations) < REGISTRATIONS_MAX

    def registered(self, producer: int) -> None:
        """Use a new producer's numbers, too, unless there are enough of them."""
        if len(self._registrations) < REGISTRATIONS_MAX:
            self._registrations[producer] = Sequences(producer)

    def resolve(self, number: Number, *, stored: bool) -> None:
        """Record that no further copy will be sent under these numbers."""
        sequences = self._registrations.get(number.producer)
        if sequences is not None:
            sequences.resolve(number.sequence, number.messages, acknowledged=stored)

    def forget(self, producer: int) -> None:
        """Use no further numbers of a producer that the group has forgotten."""
        self._registrations.pop(producer, None)
