"""Statistics of all appends of one client."""

from dledger_client.errors import ClientError, OutcomeUnknownError


class AppendStatistics:
    """Counters that the dispatcher updates. Times are on the event loop's clock."""

    __slots__ = (
        "_acknowledged_at_s",
        "_outstanding",
        "acknowledged",
        "leader_changes",
        "leader_id",
        "longest_gap_s",
        "refused",
        "unknown",
    )

    def __init__(self) -> None:
        self.acknowledged = 0
        self.unknown = 0
        self.refused = 0
        self.leader_id: str | None = None
        self.leader_changes = 0
        """Number of times the client switched to another leader."""
        self.longest_gap_s = 0.0
        """The longest time without an acknowledgement while appends were outstanding."""
        self._outstanding = 0
        # Time of the last acknowledgement, or of the first append after a time without appends.
        self._acknowledged_at_s = 0.0

    def record_start(self, now_s: float, count: int) -> None:
        """Count appends that start now."""
        if self._outstanding == 0:
            self._acknowledged_at_s = now_s
        self._outstanding += count

    def record_acknowledged(self, now_s: float, count: int) -> None:
        """Count acknowledged appends."""
        self._end(now_s, count)
        self.acknowledged += count
        self._acknowledged_at_s = now_s

    def record_failed(self, now_s: float, error: ClientError, count: int) -> None:
        """Count appends that ended with an error, as unknown or as refused."""
        self._end(now_s, count)
        if isinstance(error, OutcomeUnknownError):
            self.unknown += count
        else:
            self.refused += count

    def record_withdrawn(self, count: int) -> None:
        """Forget the appends of a batch that restart one by one."""
        self._outstanding -= count

    def record_leader(self, leader_id: str | None) -> None:
        """Set the current leader and count the change."""
        if self.leader_id is not None and leader_id != self.leader_id:
            self.leader_changes += 1
        self.leader_id = leader_id

    def _end(self, now_s: float, count: int) -> None:
        self._outstanding -= count
        gap_s = now_s - self._acknowledged_at_s
        if gap_s > self.longest_gap_s:
            self.longest_gap_s = gap_s
