"""Remembers to whom a leader has refused to hand over, so that another member is tried next.

A member may answer and serve, and still not take over: its link to the leader is down, or it never
stands for election. Only the leader finds that out.
"""

from collections import Counter
from collections.abc import Mapping


class Refusals:
    """How often the last leader that refused a handover did so, by the member that was to lead."""

    def __init__(self) -> None:
        self._leader_id = ""
        self._times: Counter[str] = Counter()

    def of(self, leader_id: str | None) -> Mapping[str, int]:
        """Return how often this leader has refused to hand over to each member, by member id."""
        return self._times if leader_id == self._leader_id else {}

    def add(self, leader_id: str, to: str) -> None:
        """Record that a leader did not hand over to a member."""
        if leader_id != self._leader_id:
            self.clear()
        self._leader_id = leader_id
        self._times[to] += 1

    def clear(self) -> None:
        """Forget everything: the leadership has moved."""
        self._leader_id, self._times = "", Counter()
