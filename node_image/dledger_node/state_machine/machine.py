"""What a state machine must be able to do."""

from collections.abc import Iterable, Sequence
from typing import BinaryIO, NamedTuple, Protocol, Self


class CommittedEntry(NamedTuple):
    """An entry as a state machine sees it; those that a leader writes for itself it never sees."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    body: bytes


class StateMachine(Protocol):
    """A state that follows from the log alone: no clock, no chance, nothing from outside.

    So members that applied the same entries have the same state, and the same bytes of it.
    """

    def apply(self, entries: Sequence[CommittedEntry]) -> None:
        """Take committed entries: in the order of the log, each once, in batches of any size.

        It must take any body: one that means nothing to it is committed all the same.
        """

    def copy(self) -> Self:
        """The present state, which stays while this one goes on; quick, for nothing is applied
        meanwhile.
        """

    def dump(self) -> Iterable[bytes]:
        """The state as bytes, a piece at a time."""

    def load(self, file: BinaryIO) -> None:
        """Take the state that `dump` has written; ValueError when these bytes are none."""
