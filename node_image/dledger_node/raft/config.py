"""What a core is told once, when it is built. Time is counted in ticks of the shell's clock."""

from dataclasses import dataclass, field

from dledger_node.raft.membership import Membership


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """One core's settings; ValueError when they contradict each other."""

    self_id: str
    voters: tuple[str, ...]
    """The group's voters before its log's first membership entry, sorted. Members are visited in
    the order of their ids, so that the same inputs give the same outputs.
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
    lease_ticks: int = 0
    """For so long after a heartbeat round that a quorum answered, the leader answers reads without
    asking. 0: it always asks. Safe only while no member's clock runs faster than the leader's by
    more than election_ticks / lease_ticks, and only if the core hears of every tick, also of those
    that passed while its process stood still. Members then keep to a leader for election_ticks even
    when its connections are refused, so that a failover takes as long.
    """
    recall_ticks: int = 0
    """For so long a member that starts with a disk waits for all others to say what they remember
    of it, before it promises anything (`recalling`). 0: it does not ask.
    """
    sync_flush: bool = True
    """Entries are confirmed once a flush has made them durable. With AsyncFlush a crash may take
    confirmed ones, so that a shorter log is no sign of an older disk.
    """
    preferred_leader_ids: tuple[str, ...] = ()
    """Members that ought to lead, the most wanted first (DLedger's `preferredLeaderIds`)."""
    transfer_lag_entries_max: int = 1000
    """A member that lags by more is not handed the leadership (DLedger's
    `maxLeadershipTransferWaitIndex`).
    """

    addable_ids: tuple[str, ...] = ()
    """Who is no voter at first and may be added. Whoever is neither is a stranger to this member:
    nobody hears or adds it.
    """
    new_group: bool = False
    """The settings say that the group has no log yet, unless one of the voters has it: so those who
    may be added need not be there when it begins.
    """
    promotion_lag_entries_max: int = 1000
    """A learner that lags by more is not made a voter."""

    peers: tuple[str, ...] = field(init=False)
    """All others that can ever be members, sorted; asked for with every message, so made once."""

    def __post_init__(self) -> None:
        known_ids = Membership(self.voters, self.addable_ids).members
        peers = tuple(member_id for member_id in known_ids if member_id != self.self_id)
        object.__setattr__(self, "peers", peers)
        if self.self_id not in known_ids:
            raise ValueError(f"{self.self_id} is not among the members {known_ids}")
        if self.heartbeat_ticks < 1 or self.election_ticks < 2 * self.heartbeat_ticks:
            raise ValueError(
                f"election_ticks ({self.election_ticks}) must be at least twice "
                f"heartbeat_ticks ({self.heartbeat_ticks}), and that at least 1"
            )
        if self.push_entries_max < 1 or self.inflight_ranges_max < 1:
            raise ValueError("push_entries_max and inflight_ranges_max must be at least 1")
        if not 0 <= self.lease_ticks < self.election_ticks:
            raise ValueError(
                f"lease_ticks ({self.lease_ticks}) must be less than election_ticks "
                f"({self.election_ticks})"
            )
        if not set(self.preferred_leader_ids) <= set(known_ids):
            raise ValueError(f"preferred leaders must be members: {self.preferred_leader_ids}")

    @property
    def preference_ticks(self) -> int:
        """For so long a preferred member must be fit to lead before it is handed the leadership."""
        return 10 * self.election_ticks

    def preference(self, member_id: str) -> tuple[int, str]:
        """Sorts before that of every member that ought to lead less."""
        preferred = self.preferred_leader_ids
        wanted = preferred.index(member_id) if member_id in preferred else len(preferred)
        return wanted, member_id

    @property
    def stall_ticks(self) -> int:
        """After this long without progress, pushes on their way to a peer are taken for lost."""
        return max(self.heartbeat_ticks, self.election_ticks // 2)
