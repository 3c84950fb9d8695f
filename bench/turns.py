"""The turns of the members' event loops during a benchmark, which fails if one was too long."""

from collections.abc import Sequence
from typing import Final

from dledger_formats.log import disk
from tools.groups.turns import LARGEST_ENTRY_TURN_S_MAX, TURN_S_MAX, Turns

LARGE_BODY_BYTES: Final = disk.BODY_SIZE_MAX // 4
"""From this size on, the bound of the largest entries applies."""


def turn_s_max(body_bytes: int) -> float:
    """Return the longest processor time of a turn under a load with such bodies."""
    return LARGEST_ENTRY_TURN_S_MAX if body_bytes >= LARGE_BODY_BYTES else TURN_S_MAX


class LongTurns:
    """Prints how long turns were, and collects those that were too long."""

    def __init__(self) -> None:
        self._too_long: list[str] = []

    def report(self, found: Sequence[Turns]) -> None:
        """Print the longest turn of each member."""
        longest = ", ".join(
            f"{turns.member} {turns.longest_s * 1000:.1f} (timers up to "
            f"{turns.latest_s * 1000:.0f} late)"
            for turns in found
        )
        print(f"  longest turn of the event loop, ms of the processor: {longest}", flush=True)
        self._too_long += [turns.too_long for turns in found if turns.too_long is not None]

    def judge(self) -> None:
        """Exit with 1 if a turn was too long."""
        if self._too_long:
            raise SystemExit("\n".join(self._too_long))
