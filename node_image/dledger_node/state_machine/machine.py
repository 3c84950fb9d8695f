"""The interface of a state machine."""

from collections.abc import Callable, Iterable, Sequence
from typing import BinaryIO, NamedTuple, Protocol, Self, TypeAlias


class CommittedEntry(NamedTuple):
    """An entry that a client appended. A state machine never sees a leader's own entries."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not needed here
    body: bytes


class StateMachine(Protocol):
    """A state that is derived from the log alone: no clock, no randomness, no other input.

    So members that applied the same entries have the same state, and dump the same bytes.
    """

    def apply(self, entries: Sequence[CommittedEntry]) -> None:
        """Apply committed entries: in log order, each exactly once, in batches of any size.

        A body that the machine cannot interpret must be ignored: it is committed nonetheless.
        """

    def is_quick(self, entries: Sequence[CommittedEntry]) -> bool:
        """Return whether a few entries take at most some ms, so that the event loop may apply them.

        The check itself must take much less.
        """

    def copy(self) -> Self:
        """Return a copy that does not change when this state machine does.

        It must be quick, because no entry is applied in the meantime.
        """

    def dump(self) -> Iterable[bytes]:
        """Return the state as bytes, piece by piece."""

    def load(self, file: BinaryIO) -> None:
        """Replace the state by a dumped one. Raises ValueError if the bytes are not a dump."""


Make: TypeAlias = Callable[[str], StateMachine]
"""Makes the state machine of a name, in its initial state."""


class NamedMachine(NamedTuple):
    """A state machine that a program brings along."""

    name: str
    """The name for log lines and errors."""
    make: Make
