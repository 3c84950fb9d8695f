"""What a core is told once, when it is built. Time is counted in ticks of the shell's clock."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """One core's settings; ValueError when they contradict each other."""

    self_id: str
    voters: tuple[str, ...]
    """Every voter's id, this member's own included. Sorted: peers are visited in this order, so
    that the same inputs give the same outputs.
    """
    heartbeat_ticks: int
    election_ticks: int
    """A follower's timeout is random between this and twice this; a leader that has not heard
    from a quorum for this long steps down.
    """
    push_entries_max: int = 1024
    """Entries in one AppendRequest."""
    inflight_ranges_max: int = 64
    """AppendRequests on their way to one peer and not yet answered."""

    def __post_init__(self) -> None:
        if list(self.voters) != sorted(set(self.voters)):
            raise ValueError(f"voters must be sorted and distinct: {self.voters}")
        if self.self_id not in self.voters:
            raise ValueError(f"{self.self_id} is not among the voters {self.voters}")
        if self.heartbeat_ticks < 1 or self.election_ticks < 2 * self.heartbeat_ticks:
            raise ValueError(
                f"election_ticks ({self.election_ticks}) must be at least twice "
                f"heartbeat_ticks ({self.heartbeat_ticks}), and that at least 1"
            )
        if self.push_entries_max < 1 or self.inflight_ranges_max < 1:
            raise ValueError("push_entries_max and inflight_ranges_max must be at least 1")

    @property
    def peers(self) -> tuple[str, ...]:
        """The other voters, sorted."""
        return tuple(voter for voter in self.voters if voter != self.self_id)

    @property
    def stall_ticks(self) -> int:
        """After this long without progress, pushes on their way to a peer are taken for lost."""
        return max(self.heartbeat_ticks, self.election_ticks // 2)
