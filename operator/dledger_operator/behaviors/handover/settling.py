"""How long a preferred leader must have been able to lead before it gets the leadership. Pure.

A member that fails again and again, each time after it has led for a while, would take the
leadership back after each failure, and every round costs the group an election. So each
leadership that the member has lost within the last hours multiplies its required time by four, up
to an hour. The losses are read from the leader changes in the group's status, which survive a
restart of the operator.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from dledger_operator import reasons
from dledger_operator.behaviors.leader.leader_history import (
    CHANGES_MAX,
    LEADER_LOST,
    LEADER_STEPPED_DOWN,
)
from dledger_operator.observed_state import LeaderChange

LOSS_AGE_MAX: Final = timedelta(hours=6)
"""Several times `SETTLE_S_MAX`, so that a member that keeps failing stays at that time."""
FACTOR: Final = 4.0
"""The history has room for five such losses, since each follows a change to the member."""
SETTLE_S_MAX: Final = 3600.0
"""Beyond this, only `spec.preferredLeader.stableFor` counts."""
_LOSSES: Final = (LEADER_LOST, LEADER_STEPPED_DOWN, reasons.POD_REPLACED)


def recent_losses(changes: Sequence[LeaderChange], now: datetime) -> Mapping[str, int]:
    """Count by member how often it has lately lost the leadership, other than by handing over."""
    return Counter(
        change.from_member
        for change in changes
        if change.reason in _LOSSES and now - change.at < LOSS_AGE_MAX
    )


def settle_s(stable_for_s: float, losses: int) -> float:
    """Return for how long a member with `losses` losses must have been able to lead."""
    longer_s = stable_for_s * FACTOR ** min(losses, CHANGES_MAX)
    return max(stable_for_s, min(longer_s, SETTLE_S_MAX))
