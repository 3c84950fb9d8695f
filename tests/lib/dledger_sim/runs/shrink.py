"""The shrinker: removes the lines that a failing tape does not need (delta debugging, Zeller 2002).

It removes acts first, then the choices of whole sites, then single choices, each in ever smaller
pieces. Removed choices are calm. A smaller tape counts only if it breaks the same rule.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeVar

from dledger_sim.judges.violation import ViolationError
from dledger_sim.runs.choices import TapedChoices
from dledger_sim.runs.simulation import replay
from dledger_sim.runs.tape import Tape

REPLAYS_MAX = 1500

Piece = TypeVar("Piece")


class Shrinker:
    """Shrinks one tape within a number of replays."""

    def __init__(self, tape: Tape, replays_max: int = REPLAYS_MAX) -> None:
        self.tape = tape
        self._replays_left = replays_max

    def run(self) -> Tape:
        """Return a tape without any removable act or choice, or the smallest one so far.

        Raises ValueError if the given tape does not break its rule.
        """
        if not self._fails(self.tape):
            raise ValueError(f"the tape does not break its rule: {self.tape.rule}")
        size = -1
        while size != (size := self._size()) and self._replays_left > 0:
            self._shrink_acts()
            self._shrink_choices()
        return self.tape

    def _size(self) -> int:
        return len(self.tape.acts) + self.tape.choice_count

    def _shrink_acts(self) -> None:
        self._minimize(
            list(self.tape.acts), lambda acts: dataclasses.replace(self.tape, acts=tuple(acts))
        )

    def _shrink_choices(self) -> None:
        sites = list(self.tape.choices)
        self._minimize(
            sites,
            lambda kept: dataclasses.replace(
                self.tape, choices={site: self.tape.choices[site] for site in kept}
            ),
        )
        single = [
            (site, number, value)
            for site, numbered in self.tape.choices.items()
            for number, value in numbered.items()
        ]
        self._minimize(single, lambda kept: dataclasses.replace(self.tape, choices=_by_site(kept)))

    def _minimize(self, pieces: Sequence[Piece], tape_of: Callable[[list[Piece]], Tape]) -> None:
        """Remove as many pieces as possible, long runs of pieces first."""
        kept = list(pieces)
        size = max(1, len(kept))
        while size >= 1 and kept:
            at = 0
            while at < len(kept):
                if self._replays_left <= 0:
                    return
                smaller = kept[:at] + kept[at + size :]
                tape = tape_of(smaller)
                if self._fails(tape):
                    kept, self.tape = smaller, tape
                else:
                    at += size
            if size == 1:
                return
            size = max(1, size // 2)

    def _fails(self, tape: Tape) -> bool:
        self._replays_left -= 1
        try:
            replay(tape)
        except ViolationError as violation:
            return violation.rule == tape.rule
        return False


def _by_site(pieces: list[tuple[str, int, int]]) -> TapedChoices:
    choices: TapedChoices = {}
    for site, number, value in pieces:
        choices.setdefault(site, {})[number] = value
    return choices
