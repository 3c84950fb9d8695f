"""The settings of a core, fixed when it is built. Durations are in ticks of the shell's clock."""

from dataclasses import dataclass, field

from dledger_node.raft.membership import Membership


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """The settings of one core. Raises ValueError if they contradict each other."""

    self_id: str
    voters: tuple[str, ...]
    """The group's voters before the first membership entry of its log, sorted. Loops visit members
    in the order of their ids, so that equal inputs produce equal outputs.
    """
    heartbeat_ticks: int
    election_ticks: int
    """Election timeout: a follower's is random between this and twice this. A leader that no quorum
    has answered for this long steps down.
    """
    push_entries_max: int = 1024
    """Maximum number of entries in one AppendRequest."""
    inflight_ranges_max: int = 64
    """Maximum number of unanswered AppendRequests to one peer."""
    lease_ticks: int = 0
    """Length of the read lease: after a quorum has answered a heartbeat round, the leader answers
    reads without another round for this long. 0 disables leases. A lease is safe only while no
    member's clock runs faster than the leader's by more than election_ticks / lease_ticks, and only
    if the shell passes every tick to the core, including those during which its process was
    stopped. With leases, members keep to a leader for election_ticks even when its connections are
    refused, so failover takes that long.
    """
    recall_ticks: int = 0
    """How long a member that starts with its disk waits for the marks of all others before it makes
    new promises (`recalling`). 0 disables recalling.
    """
    notices_per_tick_max: int = 0
    """How often the committed index may move in a tick for a heartbeat to report it to peers at
    once. If it moves more often, or if this is 0, they learn it with the next push or heartbeat
    round.
    """
    confirms_unflushed: bool = False
    """Whether this member confirms entries that a loss of power may take from the end of its log
    (AsyncFlush). Term and vote are always on disk.
    """
    preferred_leader_ids: tuple[str, ...] = ()
    """Preferred leaders, the most preferred first (DLedger's `preferredLeaderIds`)."""
    transfer_lag_entries_max: int = 1000
    """Maximum lag of a member that receives the leadership (DLedger's
    `maxLeadershipTransferWaitIndex`).
    """

    addable_ids: tuple[str, ...] = ()
    """Members that are not among the first voters but may be added later. This member ignores
    messages from any id that is in neither list, and refuses to add it.
    """
    new_group: bool = False
    """Whether the settings declare the group new: if no voter has a log, no member has. The voters
    can then start the group without an answer from the addable members.
    """
    needs_seed: bool = False
    """Whether a new group must begin with an archive. Then empty members begin none; otherwise,
    members with an archive's log begin none.
    """
    promotion_lag_entries_max: int = 1000
    """Maximum lag of a learner that is promoted to voter."""

    peers: tuple[str, ...] = field(init=False)
    """All other ids that can ever be members, sorted; computed once, since every message needs it.
    """

    def __post_init__(self) -> None:
        known_ids = Membership(self.voters, self.addable_ids).members
        peers = tuple(member_id for member_id in known_ids if member_id != self.self_id)
        object.__setattr__(self, "peers", peers)
        if self.self_id not in known_ids:
            raise ValueError(f"{self.self_id} is not among the members {known_ids}")
        if self.heartbeat_ticks < 1 or self.election_ticks < 2 * self.heartbeat_ticks:
            raise ValueError(
                f"election_ticks ({self.election_ticks}) must be at least twice "
                f"heartbeat_ticks ({self.heartbeat_ticks}), which must be at least 1"
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
        """How long a preferred member must be fit to lead before the leader hands over to it."""
        return 10 * self.election_ticks

    def preference(self, member_id: str) -> tuple[int, str]:
        """Return a sort key; a more preferred leader sorts first."""
        preferred = self.preferred_leader_ids
        wanted = preferred.index(member_id) if member_id in preferred else len(preferred)
        return wanted, member_id

    @property
    def stall_ticks(self) -> int:
        """How long pushes to a peer may go without progress before the leader assumes them lost."""
        return max(self.heartbeat_ticks, self.election_ticks // 2)
