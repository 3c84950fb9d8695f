"""The startup grace period of a new group, in which members that are not ready are expected."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from dledger_operator.observed_state import ObservedMember

GRACE_PERIOD: Final = timedelta(seconds=60)


class StartupGracePeriod:
    """Ends `GRACE_PERIOD` after the group's creation, or as soon as all members were ready once."""

    def __init__(self, created: datetime) -> None:
        """Start the period at the object's creation time."""
        self._created = created
        self._over = False

    def is_active(self, members: Sequence[ObservedMember], now: datetime) -> bool:
        """Return whether the period continues. `members` are all members in the spec."""
        all_ready = bool(members) and all(member.ready for member in members)
        self._over = self._over or all_ready or now - self._created >= GRACE_PERIOD
        return not self._over
