"""What a client can say of all its appends together."""

from dledger_client.errors import ClientError, OutcomeUnknownError


class AppendStatistics:
    """Counts, as the dispatcher reports them; times are on the loop's clock."""

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
        """How often the leader was another one than before."""
        self.longest_gap_s = 0.0
        """The longest time without an acknowledgement while one was awaited."""
        self._outstanding = 0
        # The last acknowledgement, or since when one is awaited.
        self._acknowledged_at_s = 0.0

    def began(self, now_s: float, count: int) -> None:
        """Count appends that are awaited from now on."""
        if self._outstanding == 0:
            self._acknowledged_at_s = now_s
        self._outstanding += count

    def record_acknowledged(self, now_s: float, count: int) -> None:
        """Count their end as a success."""
        self._note_gap(now_s, count)
        self.acknowledged += count
        self._acknowledged_at_s = now_s

    def failed(self, now_s: float, error: ClientError, count: int) -> None:
        """Count their end as anything else."""
        self._note_gap(now_s, count)
        if isinstance(error, OutcomeUnknownError):
            self.unknown += count
        else:
            self.refused += count

    def record_withdrawn(self, count: int) -> None:
        """Forget appends that begin anew, each for itself."""
        self._outstanding -= count

    def _note_gap(self, now_s: float, count: int) -> None:
        self._outstanding -= count
        gap_s = now_s - self._acknowledged_at_s
        if gap_s > self.longest_gap_s:
            self.longest_gap_s = gap_s

    def record_leader(self, leader_id: str | None) -> None:
        """Take note of who leads now."""
        if self.leader_id is not None and leader_id != self.leader_id:
            self.leader_changes += 1
        self.leader_id = leader_id
