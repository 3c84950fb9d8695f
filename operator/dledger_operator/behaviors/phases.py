"""Spreads the groups over the moments at which their loops run.

Loops that run on a tick share a wake-up of the process, which costs more than what most of them do
in it. But if all groups did their work at one moment, they would delay the reaction to a leader
change at that moment, and more so with more groups. So only a few groups share a moment.
"""

import contextlib
from collections.abc import Iterator
from typing import Final

from dledger_operator.behaviors.loops import TICK_S

GROUPS_PER_PHASE: Final = 10
PHASE_S: Final = 0.25
PHASES_MAX: Final = round(TICK_S / PHASE_S)


class Phases:
    """The moments after each tick, and how many groups have each."""

    def __init__(self) -> None:
        self._groups = [0] * PHASES_MAX

    @contextlib.contextmanager
    def for_a_group(self) -> Iterator[float]:
        """Yield how long after each tick a group's loops run, in seconds.

        The moment is the first that fewer than `GROUPS_PER_PHASE` groups have, so that few groups
        wake the process as rarely as one; if there is none, the one that the fewest groups have.
        """
        room = (k for k, groups in enumerate(self._groups) if groups < GROUPS_PER_PHASE)
        phase = next(room, None)
        if phase is None:
            phase = self._groups.index(min(self._groups))
        self._groups[phase] += 1
        try:
            yield phase * PHASE_S
        finally:
            self._groups[phase] -= 1
