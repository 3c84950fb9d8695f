"""A group's first minute: members that are not ready yet are no trouble."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from dledger_operator.facts import MemberFacts

# For so long after its creation a group is merely starting.
AGE_MAX: Final = timedelta(seconds=60)


class Beginning:
    """Ends when every member has been ready once: from then on, whoever is not has fallen."""

    def __init__(self, created: datetime) -> None:
        """Take the object's creation time."""
        self._created = created
        self._over = False

    def lasts(self, members: Sequence[MemberFacts], now: datetime) -> bool:
        """Tell whether the group is merely starting. `members` are all that the spec asks for."""
        whole = bool(members) and all(member.ready for member in members)
        self._over = self._over or whole or now - self._created >= AGE_MAX
        return not self._over
