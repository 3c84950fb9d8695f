"""How long to wait before the next try."""

from collections.abc import Callable
from typing import Final

PAUSE_MIN_S: Final = 0.005
PAUSE_MAX_S: Final = 1.0
SHARE: Final = 1 / 16


def pause_s(
    elapsed_s: float, random: Callable[[], float], at_least_s: float = PAUSE_MIN_S
) -> float:
    """Return the seconds to wait when the trouble has lasted `elapsed_s`.

    A sixteenth of it, so that pauses grow exponentially and yet waiting never costs more than a
    sixteenth on top of what the group itself needed: a failover of one second costs the client at
    most 63 ms more. `random` (0 to 1) takes off up to half, so that clients that failed together
    do not come back together.
    """
    pause = min(PAUSE_MAX_S, max(elapsed_s * SHARE, at_least_s))
    return pause * (1 - random() / 2)
