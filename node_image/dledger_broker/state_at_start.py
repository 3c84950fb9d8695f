"""Whether the state of a member that has started again has applied the log that it started with.

A leader takes no sends before it has applied its whole log, and that takes a second for each 20,000
entries or so since its last snapshot. A member that is ready may be the next leader: an operator
moves the leadership to it, or replaces the pod of the current leader.
"""

from dledger_node.embedding import Member


class StateAtStart:
    """Watches the state from the start of a member until it has caught up once."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._end_index = member.end_index
        self._has_caught_up = False

    @property
    def why_behind(self) -> str:
        """Why this member should not lead yet, in words; empty if it may."""
        member = self._member
        if self._has_caught_up or member.leader_id is None:
            return ""
        # Entries that another leader has removed are never applied.
        self._has_caught_up = member.applied_index >= min(self._end_index, member.end_index)
        return "" if self._has_caught_up else "the broker is applying the log it started with"
