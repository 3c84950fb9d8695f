"""What one seed's group has to live with.

Each seed draws its own few faults and rates ("swarm testing"): a run with every fault at once makes
no progress worth checking.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

from dledger_sim.group.disk import Keep

TICK_US = 10_000
RECALL_FOREVER_TICKS = 1_000_000
CLOCK_DRIFT_MAX = 100
"""Thousandths: a member's clock runs at 0.9 to 1.1 of true time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Sizes, speeds and rates; the defaults are a calm group."""

    member_count: int = 3
    voter_count: int = 0
    """So many of them are voters at first; 0 for all."""
    heartbeat_ticks: int = 5
    election_ticks: int = 20
    push_entries_max: int = 64
    inflight_ranges_max: int = 8
    clock_drift: int = 0
    """How far the clocks' speeds may differ, in thousandths."""
    lease_ticks: int = 0
    recall_ticks: int = 0
    """How long who starts waits for its peers to say what they remember of it."""
    preferred_count: int = 0
    """So many members ought to lead, the last one most."""
    # Clients.
    client_count: int = 3
    proposal_interval_us: int = 10_000
    proposal_entries_max: int = 4
    reads: float = 0.2
    """How many of the clients' requests read; half of these are linearizable."""
    transfers: float = 0.0
    """How many of the clients' requests hand the leadership over."""
    changes: float = 0.0
    """How many of them change the membership."""
    # Network.
    loss: float = 0.0
    duplicate: float = 0.0
    delay_us: int = 300
    in_order: bool = True
    split_push: float = 0.0
    """How often the shell sends a push in two pieces."""
    notice_link: float = 1.0
    """How often a member learns that a connection broke or came back."""
    real_bytes: bool = False
    """Messages are encoded and decoded, and entries judged, as between real members."""
    # Disk.
    flush_us: int = 1_000
    slow_hard_state: float = 0.0
    """How often saving term and vote takes long enough for other inputs to come between."""
    checkpoint: float = 0.0
    """How often the committed index is written down."""
    keep: Keep = Keep.SOMETHING
    crash_in_ready: float = 0.0
    """How often a member dies in the middle of a Ready."""
    flush_failure: float = 0.0
    """How often a flush fails."""
    # A state, and its snapshots.
    snapshot_entries: int = 0
    """A snapshot is due once so many entries were applied since the last; 0 for no state at all."""
    snapshots_reserved: int = 1
    chunk_bytes: int = 64
    """A snapshot is sent in pieces of this size."""
    state_us: int = 300
    """How long a batch takes to be applied, or a chunk or a snapshot to be written."""
    # Nemesis.
    strike_interval_us: int = 0
    """Mean time between strikes; 0 for none."""
    leader_bias: float = 0.0
    """How often a strike is aimed at a leader."""
    ambush: float = 0.0
    """How often a member is struck at a bad moment: see `Moment`."""
    moments: tuple[str, ...] = ()
    """Names of the moments at which the nemesis may strike."""
    faults: tuple[str, ...] = ()
    """Names of what a strike may be: see `nemesis`."""

    @property
    def reshapes(self) -> bool:
        """Whether the membership may change."""
        return self.changes > 0 or "reshape" in self.faults

    @property
    def rots(self) -> bool:
        """Whether entries of logs may rot."""
        return "rot_entry" in self.faults

    @property
    def voter_ids(self) -> tuple[str, ...]:
        """With whom the group begins."""
        return self.member_ids[: self.voter_count or self.member_count]

    @property
    def member_ids(self) -> tuple[str, ...]:
        """n0, n1 and so on."""
        return tuple(f"n{number}" for number in range(self.member_count))

    @property
    def preferred_leader_ids(self) -> tuple[str, ...]:
        """The members that ought to lead, the most wanted first."""
        return self.member_ids[::-1][: self.preferred_count]

    @property
    def stall_ticks(self) -> int:
        """After this long without an answer a leader takes a push for lost (`RaftConfig`)."""
        return max(self.heartbeat_ticks, self.election_ticks // 2)

    def to_json(self) -> dict[str, Any]:
        """The fields that differ from a calm group's, as JSON knows them."""
        calm = Conditions()
        named = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        changed = {name: value for name, value in named.items() if value != getattr(calm, name)}
        if "keep" in changed:
            changed["keep"] = self.keep.value
        return changed

    @classmethod
    def from_json(cls, named: dict[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        values: dict[str, Any] = dict(named)
        if "keep" in values:
            values["keep"] = Keep(values["keep"])
        for name in ("moments", "faults"):
            values[name] = tuple(values.get(name, ()))
        return cls(**values)
