"""The conditions of one group: sizes, speeds, rates and allowed faults."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

from dledger_node.raft.config import RaftConfig
from dledger_sim.group.disk import Keep

TICK_US = 10_000
RECALL_FOREVER_TICKS = 1_000_000
CLOCK_DRIFT_MAX = 100
"""In thousandths: a member's clock runs at 0.9 to 1.1 of true time."""
SKEW_MS_MAX = 2000
"""Maximum error of the wall clock of a broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Sizes, speeds and rates of one group. The defaults describe a calm group without faults."""

    member_count: int = 3
    voter_count: int = 0
    """Number of founding voters; 0 for all members."""
    heartbeat_ticks: int = 5
    election_ticks: int = 20
    push_entries_max: int = 64
    inflight_ranges_max: int = 8
    clock_drift: int = 0
    """Maximum deviation of a clock's speed, in thousandths."""
    lease_ticks: int = 0
    notices_per_tick_max: int = 0
    """See `RaftConfig`."""
    recall_ticks: int = 0
    """How long a recalling member waits for its peers' marks; 0 for not at all."""
    preferred_count: int = 0
    """Number of preferred leaders; the last member is preferred most."""
    # Clients.
    client_count: int = 3
    proposal_interval_us: int = 10_000
    proposal_entries_max: int = 4
    reads: float = 0.2
    """Share of requests that read; half of the reads are linearizable."""
    follower_reads: bool = False
    """Let members that do not lead answer reads; most reads then go to any member."""
    transfers: float = 0.0
    """Share of requests for a leadership transfer."""
    changes: float = 0.0
    """Share of requests for a membership change."""
    # Network.
    loss: float = 0.0
    duplicate: float = 0.0
    delay_us: int = 300
    in_order: bool = True
    split_push: float = 0.0
    """Probability that a push is sent in two parts."""
    notice_link: float = 1.0
    """Probability that a member learns of a lost or restored connection."""
    real_bytes: bool = False
    """Encode and decode messages and validate pushed entries with the node's own code."""
    # Disk.
    flush_us: int = 1_000
    async_flush: bool = False
    """Whether members confirm entries that only the kernel holds (AsyncFlush)."""
    flush_switches: float = 0.0
    """Probability that a member of such a group starts with SyncFlush instead."""
    slow_hard_state: float = 0.0
    """Probability that a save of term and vote takes so long that other inputs arrive before."""
    slow_change: float = 0.0
    """Probability that a truncation, or a replacement of the log, takes as long."""
    checkpoint: float = 0.0
    """Probability that a new committed index is saved."""
    mends: bool = False
    """Whether entries may rot on several members, which mend them from each other."""
    keep: Keep = Keep.SOMETHING
    crash_in_ready: float = 0.0
    """Probability of a crash at each step of a Ready."""
    flush_failure: float = 0.0
    """Probability that a flush fails."""
    # State and snapshots.
    snapshot_entries: int = 0
    """Applied entries after which the next snapshot is due; 0 for members without a state."""
    snapshots_reserved: int = 1
    chunk_bytes: int = 64
    """Size of the chunks in which a snapshot is sent."""
    state_us: int = 300
    """Mean time to apply a batch, or to write a chunk or a snapshot."""
    replays: bool = False
    """Whether the network is so calm that members which are behind must be elected last."""
    # Broker.
    broker_speed: int = 0
    """How many seconds of the members' brokers pass in one of the run; 0 for members without one.
    """
    lock_rate: float = 0.0
    """Share of the brokers' requests that lock queues or give them back."""
    delay_rate: float = 0.0
    """Share of the messages that are delayed."""
    admin_rate: float = 0.0
    """Share of the brokers' requests that create or delete a topic or a consumer group."""
    return_rate: float = 0.0
    """Share of the brokers' requests that return a message, or pull returned messages."""
    name_servers: int = 0
    """Number of name servers; they are good, slow, lying or down for a while."""
    thread_us: int = 200
    """Mean time of a function that a broker runs in a thread."""
    # Work.
    slowness: int = 0
    """The factor by which all work of a member's event loop takes longer than on a fast machine;
    0 if no work takes any time.
    """
    # Nemesis.
    strike_interval_us: int = 0
    """Mean time between strikes; 0 for no strikes."""
    leader_bias: float = 0.0
    """Share of strikes that are aimed at a leader."""
    ambush: float = 0.0
    """Probability of a strike at a bad moment; see `Moment`."""
    moments: tuple[str, ...] = ()
    """Names of the moments (`Moment`) at which the nemesis may strike."""
    faults: tuple[str, ...] = ()
    """Names of the allowed strikes (`nemesis.FAULTS`)."""

    def raft_config(self, member_id: str, *, async_flush: bool) -> RaftConfig:
        """Return the settings of a member's core."""
        return RaftConfig(
            self_id=member_id,
            voters=self.voter_ids,
            addable_ids=self.member_ids[len(self.voter_ids) :],
            heartbeat_ticks=self.heartbeat_ticks,
            election_ticks=self.election_ticks,
            push_entries_max=self.push_entries_max,
            inflight_ranges_max=self.inflight_ranges_max,
            lease_ticks=self.lease_ticks,
            recall_ticks=self.recall_ticks,
            notices_per_tick_max=self.notices_per_tick_max,
            confirms_unflushed=async_flush,
            preferred_leader_ids=self.preferred_leader_ids,
        )

    @property
    def reshapes(self) -> bool:
        """Return whether the membership may change."""
        return self.changes > 0 or "reshape" in self.faults

    @property
    def rots(self) -> bool:
        """Return whether log entries may rot."""
        return "rot_entry" in self.faults

    @property
    def voter_ids(self) -> tuple[str, ...]:
        """Return the founding voters."""
        return self.member_ids[: self.voter_count or self.member_count]

    @property
    def member_ids(self) -> tuple[str, ...]:
        """Return the member IDs: n0, n1 and so on."""
        return tuple(f"n{number}" for number in range(self.member_count))

    @property
    def preferred_leader_ids(self) -> tuple[str, ...]:
        """Return the preferred leaders, most preferred first."""
        return self.member_ids[::-1][: self.preferred_count]

    @property
    def stall_ticks(self) -> int:
        """Return the time without an answer after which a leader treats a push as lost."""
        return max(self.heartbeat_ticks, self.election_ticks // 2)

    def to_json(self) -> dict[str, Any]:
        """Return the fields that differ from the defaults, as JSON values."""
        calm = Conditions()
        named = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        changed = {name: value for name, value in named.items() if value != getattr(calm, name)}
        if "keep" in changed:
            changed["keep"] = self.keep.value
        return changed

    @classmethod
    def from_json(cls, named: dict[str, Any]) -> Self:
        """Create conditions from the result of `to_json`."""
        values: dict[str, Any] = dict(named)
        if "keep" in values:
            values["keep"] = Keep(values["keep"])
        for name in ("moments", "faults"):
            values[name] = tuple(values.get(name, ()))
        return cls(**values)
