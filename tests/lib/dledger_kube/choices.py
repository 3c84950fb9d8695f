"""Every path through a tree of choices, for tests that explore all orders of events."""

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Choices:
    """One path through a tree of choices; `advance` moves to the next path."""

    taken: list[int] = field(default_factory=list)
    width: list[int] = field(default_factory=list)
    _next: int = 0

    def pick(self, count: int) -> int:
        """Choose one of `count` alternatives."""
        if self._next == len(self.taken):
            self.taken.append(0)
            self.width.append(count)
        assert self.width[self._next] == count, "the run is not deterministic"
        self._next += 1
        return self.taken[self._next - 1]

    def advance(self) -> bool:
        """Move to the next path. Return False if there is none."""
        self._next = 0
        while self.taken and self.taken[-1] + 1 == self.width[-1]:
            self.taken.pop()
            self.width.pop()
        if not self.taken:
            return False
        self.taken[-1] += 1
        return True


def all_choices() -> Iterator[Choices]:
    """Go through all paths of a tree, one after the other."""
    choices = Choices()
    yield choices
    while choices.advance():
        yield choices
