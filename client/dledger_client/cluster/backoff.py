"""The pause before the next attempt."""

from collections.abc import Callable
from typing import Final

PAUSE_MIN_S: Final = 0.005
PAUSE_MAX_S: Final = 1.0
SHARE: Final = 1 / 16


def pause_s(
    elapsed_s: float, random: Callable[[], float], at_least_s: float = PAUSE_MIN_S
) -> float:
    """Return the pause in seconds after failing for `elapsed_s`.

    The pause is a sixteenth of `elapsed_s`. Pauses thus grow exponentially, yet add at most a
    sixteenth to the time that the group itself was unavailable: a failover of one second costs the
    client at most 63 ms more. `random` returns a number from 0 to 1 that subtracts up to half of
    the pause, so that clients that failed together do not retry together.
    """
    pause = min(PAUSE_MAX_S, max(elapsed_s * SHARE, at_least_s))
    return pause * (1 - random() / 2)
