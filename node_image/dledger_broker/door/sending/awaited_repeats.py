"""Repeated requests whose first copy is in the log and not committed yet: they share its outcome.

A leader's log only grows. So while the member leads the same term, the entry at an index is the one
that the first copy has written.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, NamedTuple, Protocol

from dledger_node.services.drafts import WAIT_S

AWAITED_MAX: Final = 10_000
"""Repeats that may wait at once; the door of a further one asks again."""


class Leading(Protocol):
    """The member, as far as it is used here."""

    @property
    def leads(self) -> bool:
        """Whether this member leads."""

    @property
    def term(self) -> int:
        """The member's term."""

    @property
    def readable_index(self) -> int:
        """Index up to which this member knows that every entry is committed."""


class _Repeat(NamedTuple):
    last_index: int
    term: int
    until_s: float
    done: Callable[[bool], None]


class AwaitedRepeats:
    """Holds repeats until the entries of the first copy are committed, or may never be."""

    def __init__(self, member: Leading, now_s: Callable[[], float]) -> None:
        self._member = member
        self._now_s = now_s
        self._waiting: list[_Repeat] = []

    @property
    def is_idle(self) -> bool:
        """Whether no repeat waits."""
        return not self._waiting

    def wait(self, index: int, arrived_s: float, done: Callable[[bool], None]) -> None:
        """Call `done` once with whether this member has committed the entry at `index`, in the term
        that it leads now, at most `WAIT_S` after the request came.
        """
        repeat = _Repeat(index, self._member.term, arrived_s + WAIT_S, done)
        if len(self._waiting) >= AWAITED_MAX:
            done(False)
        elif (outcome := self._outcome(repeat)) is not None:
            done(outcome)
        else:
            self._waiting.append(repeat)

    def go_on(self) -> None:
        """End the repeats whose outcome is known, or that have waited for too long."""
        if not self._waiting:
            return
        outcomes = [(repeat, self._outcome(repeat)) for repeat in self._waiting]
        self._waiting = [repeat for repeat, outcome in outcomes if outcome is None]
        with ExitStack() as stack:  # calls the others even after one fails
            for repeat, outcome in reversed(outcomes):
                if outcome is not None:
                    stack.callback(repeat.done, outcome)

    def _outcome(self, repeat: _Repeat) -> bool | None:
        """Return whether a repeat is committed; None if it must wait."""
        member = self._member
        leads_on = member.leads and member.term == repeat.term
        is_committed = leads_on and repeat.last_index <= member.readable_index
        if leads_on and not is_committed and self._now_s() < repeat.until_s:
            return None
        return is_committed
