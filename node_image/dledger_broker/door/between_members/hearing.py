"""Whether the link to the leader is alive, and whether the leader answers this member. No IO.

A leader answers the HELLO of a link at once, also while it is not ready or has no quorum. So a link
over which not even that answer has come is dead. Answers to other requests may take longer.
"""

import math
from collections.abc import Callable
from typing import Final

from dledger_broker.door.between_members import refusals
from dledger_broker.door.between_members.known_leader import LeaderTerm
from dledger_broker.door.between_members.refusals import AVOIDED_S, AvoidedLeader
from dledger_broker.messages.send_checks import RefusedError

SILENT_S: Final = 1.0
"""How long a request must have been on its way before silence means that the link is dead."""
GRACE_S: Final = 0.25
"""How long the link is kept after a request on it has ended without an answer. A leader without a
quorum answers within this time, a little after this member gives up. Then the other requests stay
on the link.
"""


class Hearing:
    """What has been received over the current link."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.heard_s = -math.inf
        """When something was last received over the link."""
        self._now_s = now_s
        self._opened_s = 0.0
        self._doubted_s: float | None = None
        """When the link came into doubt; None while it is not in doubt."""
        self._mute = AvoidedLeader(now_s, refusals.MUTE)

    def opened(self) -> None:
        """Record that a new link replaces the last one."""
        self.heard_s, self._opened_s = -math.inf, self._now_s()
        self._doubted_s = None

    def heard(self) -> None:
        """Record that something came over the link."""
        self.heard_s = self._now_s()
        self._doubted_s = None
        self._mute.forgive()

    def leader_changed(self) -> None:
        """Let the leader be asked again."""
        self._mute.forgive()

    def unanswered(self, sent_s: float) -> None:
        """Record that a request has ended without its answer."""
        now_s = self._now_s()
        if self._doubted_s is None and self.heard_s <= sent_s <= now_s - SILENT_S:
            self._doubted_s = now_s

    def is_dead(self) -> bool:
        """Return whether nothing has come since an unanswered request was sent."""
        return self._doubted_s is not None and self._now_s() >= self._doubted_s + GRACE_S

    def is_of_no_use(self) -> bool:
        """Return whether nothing was ever received over a link that was opened long ago."""
        return self.heard_s == -math.inf and self._now_s() >= self._opened_s + AVOIDED_S

    def gives_up(self, leader: LeaderTerm) -> bool:
        """Return whether the leader of a silent link has never answered over it.

        If so, requests for it are refused for a while.
        """
        is_mute = self.heard_s == -math.inf
        if is_mute:
            self._mute.avoid(leader)
        return is_mute

    def refusal(self, leader: LeaderTerm) -> RefusedError | None:
        """Return the answer to clients if the leader does not answer this member; else None."""
        return self._mute.refusal(leader)
