"""What one seed's group has to live with.

Each seed draws its own few faults and rates ("swarm testing"): a run with every fault at once makes
no progress worth checking.
"""

import dataclasses
import random
from dataclasses import dataclass
from typing import Any, Self

from dledger_sim.group.disk import Keep
from dledger_sim.group.moments import Moment

TICK_US = 10_000
SHORT_REIGNS_RATE = 0.15
LATE_READS_RATE = 0.2
LATE_TERMS_RATE = 0.03
"""A part of the late reads."""
LOST_VOLUMES_RATE = 0.15
CHANGES_RATE = 0.15
OLDER_DISKS_RATE = 0.05
RECALL_FOREVER_TICKS = 1_000_000
CLOCK_DRIFT_MAX = 100
"""Thousandths: a member's clock runs at 0.9 to 1.1 of true time."""
VOLUME_FAULTS = ("remove_front", "crash", "isolate", "reset_link", "cut_one_way", "pause", "clog")
ANY_MOMENT = tuple(moment for moment in Moment if moment is not Moment.FETCHES)
"""Those of every group."""
OLDER_DISKS_FAULTS = ("crash", "isolate", "reset_link", "cut_one_way", "pause", "clog")
LATE_READS_FAULTS = (
    ("late_answers",),
    ("late_answers", "hold_up", "hide"),
    ("late_answers", "hold_up", "hide"),
    ("disconnect", "hide"),
    ("isolate", "cut_one_way", "crash", "clog"),
)


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

    @classmethod
    def drawn(cls, rng: random.Random, faults: tuple[str, ...]) -> Self:
        """Draw conditions without a state."""
        drawn = rng.random()
        if drawn < SHORT_REIGNS_RATE:
            conditions = cls._short_reigns(rng)
        elif drawn < SHORT_REIGNS_RATE + LATE_TERMS_RATE:
            conditions = cls._late_terms(rng)
        elif drawn < SHORT_REIGNS_RATE + LATE_READS_RATE:
            conditions = cls._late_reads(rng)
        elif drawn < SHORT_REIGNS_RATE + LATE_READS_RATE + LOST_VOLUMES_RATE:
            conditions = cls._lost_volumes(rng)
        elif drawn > 1.0 - CHANGES_RATE:
            conditions = cls._changes(rng, faults)
        elif drawn > 1.0 - CHANGES_RATE - OLDER_DISKS_RATE:
            return cls._older_disks(rng)
        else:
            conditions = cls._all_sorts(rng, faults)
        recalls = int(drawn * 1_000_000) % 2
        return dataclasses.replace(conditions, recall_ticks=recalls * conditions.election_ticks)

    @classmethod
    def _all_sorts(cls, rng: random.Random, faults: tuple[str, ...]) -> Self:
        """Draw anything."""
        heartbeat_ticks = rng.choice((1, 2, 3))
        election_ticks = heartbeat_ticks * rng.choice((3, 4, 6))
        return cls(
            member_count=rng.choice((1, 2, 3, 3, 3, 3, 3, 4, 5, 5, 5, 6, 7)),
            heartbeat_ticks=heartbeat_ticks,
            election_ticks=election_ticks,
            push_entries_max=rng.choice((1, 2, 8, 64)),
            inflight_ranges_max=rng.choice((1, 2, 4, 16)),
            clock_drift=rng.choice((0, 0, 20, CLOCK_DRIFT_MAX)),
            preferred_count=rng.choice((0, 0, 0, 1, 2)),
            client_count=rng.choice((1, 3, 5)),
            proposal_interval_us=rng.choice((2_000, 5_000, 20_000)),
            proposal_entries_max=rng.choice((1, 1, 4, 10)),
            reads=rng.choice((0.0, 0.2, 0.5)),
            transfers=rng.choice((0.0, 0.0, 0.02, 0.2)),
            loss=rng.choice((0.0, 0.0, 0.02, 0.1, 0.3)),
            duplicate=rng.choice((0.0, 0.0, 0.05, 0.2)),
            delay_us=rng.choice((200, 2_000, 10_000, 30_000)),
            in_order=rng.random() < 0.4,
            split_push=rng.choice((0.0, 0.3)),
            notice_link=rng.choice((0.0, 0.5, 1.0)),
            real_bytes=rng.random() < 0.1,
            flush_us=rng.choice((100, 3_000, 20_000, 100_000)),
            slow_hard_state=rng.choice((0.0, 0.0, 0.3)),
            checkpoint=rng.choice((0.0, 0.1)),
            keep=rng.choice(tuple(Keep)),
            crash_in_ready=rng.choice((0.0, 0.0, 0.002, 0.01)),
            flush_failure=rng.choice((0.0, 0.0, 0.01, 0.05)),
            strike_interval_us=int(rng.choice((0, 0.3, 0.7, 1, 3)) * election_ticks * TICK_US),
            leader_bias=rng.choice((0.0, 0.5, 0.95, 1.0)),
            ambush=rng.choice((0.0, 0.0, 0.05, 0.5, 0.9)),
            moments=tuple(moment.value for moment in ANY_MOMENT if rng.random() < 0.5),
            faults=tuple(fault for fault in faults if rng.random() < 0.4),
        )

    @classmethod
    def _short_reigns(cls, rng: random.Random) -> Self:
        """Draw conditions under which leaders fall while their first entries travel one by one.

        Without these, hardly any seed counts an entry of an older term (Raft paper, figure 8).
        """
        return cls(
            member_count=rng.choice((3, 5)),
            heartbeat_ticks=1,
            election_ticks=4,
            push_entries_max=1,
            inflight_ranges_max=1,
            proposal_interval_us=20_000,
            proposal_entries_max=1,
            reads=rng.choice((0.0, 0.2)),
            loss=rng.choice((0.0, 0.1)),
            delay_us=2_000,
            flush_us=100,
            keep=Keep.EVERYTHING,
            strike_interval_us=60_000,
            leader_bias=0.9,
            ambush=0.9,
            moments=(Moment.ELECTED.value,),
            faults=("crash", "isolate"),
        )

    @classmethod
    def _late_reads(cls, rng: random.Random) -> Self:
        """Draw conditions under which a leader is read from, most by its lease, that is cut off
        from what goes on.

        A lease trusts the clocks: 0.9 against 1.1 is allowed for, a process that stands still not.
        """
        election_ticks = rng.choice((8, 12, 12, 16))
        lease_ticks = election_ticks * 3 // 4 - 1
        # So much happens between two rounds that another may be elected meanwhile.
        rare_rounds = rng.random() < 0.2
        return cls(
            member_count=rng.choice((3, 3, 3, 5)),
            heartbeat_ticks=election_ticks // 2 if rare_rounds else rng.choice((1, 2, 2)),
            election_ticks=election_ticks,
            clock_drift=rng.choice((0, CLOCK_DRIFT_MAX, CLOCK_DRIFT_MAX)),
            lease_ticks=0
            if rare_rounds
            else rng.choice((0, lease_ticks, lease_ticks, lease_ticks)),
            proposal_interval_us=rng.choice((3_000, 5_000)),
            proposal_entries_max=1,
            reads=0.75,
            transfers=0.1 if rare_rounds else rng.choice((0.0, 0.02)),
            loss=rng.choice((0.0, 0.05)),
            delay_us=rng.choice((300, 2_000, 2_000, 10_000)),
            in_order=rng.random() < 0.5,
            flush_us=100,
            strike_interval_us=rng.choice((1, 2)) * election_ticks * TICK_US,
            leader_bias=1.0,
            ambush=rng.choice((0.2, 0.5, 0.9)),
            moments=(Moment.ELECTED.value, Moment.STANDS.value, Moment.HANDS_OVER.value),
            faults=("late_answers",) if rare_rounds else rng.choice(LATE_READS_FAULTS),
        )

    @classmethod
    def _late_terms(cls, rng: random.Random) -> Self:
        """Draw conditions under which a leader is read from by its lease, while one who gave it
        learns of a newer term; nothing else goes wrong, or that would come too late.
        """
        election_ticks = rng.choice((8, 12, 16))
        return dataclasses.replace(
            cls._late_reads(rng),
            member_count=3,
            heartbeat_ticks=1,
            election_ticks=election_ticks,
            clock_drift=rng.choice((0, CLOCK_DRIFT_MAX)),
            lease_ticks=election_ticks * 3 // 4 - 1,
            transfers=0.0,
            loss=0.0,
            delay_us=300,
            strike_interval_us=3 * election_ticks * TICK_US,
            ambush=0.0,
            faults=("late_term",),
        )

    @classmethod
    def _lost_volumes(cls, rng: random.Random) -> Self:
        """Draw conditions under which volumes are lost while leaders change and messages linger."""
        heartbeat_ticks = rng.choice((1, 2))
        return cls(
            member_count=rng.choice((3, 3, 3, 5)),
            heartbeat_ticks=heartbeat_ticks,
            election_ticks=heartbeat_ticks * rng.choice((6, 10)),
            push_entries_max=rng.choice((1, 8)),
            inflight_ranges_max=rng.choice((1, 4)),
            proposal_interval_us=rng.choice((5_000, 20_000)),
            loss=rng.choice((0.0, 0.0, 0.1)),
            duplicate=rng.choice((0.0, 0.2)),
            delay_us=rng.choice((300, 2_000, 5_000)),
            in_order=rng.random() < 0.4,
            flush_us=rng.choice((100, 3_000)),
            slow_hard_state=rng.choice((0.0, 0.3)),
            keep=rng.choice(tuple(Keep)),
            strike_interval_us=int(rng.choice((4, 10, 20)) * heartbeat_ticks * TICK_US),
            leader_bias=rng.choice((0.5, 0.9)),
            faults=(
                "lose_volume",
                *(fault for fault in VOLUME_FAULTS if rng.random() < 0.35),
            ),
        )

    @classmethod
    def _older_disks(cls, rng: random.Random) -> Self:
        """Draw conditions under which disks come back as they were, while leaders change.

        Whoever knows of what they lack stays up until it was asked: no member dies by chance.
        """
        heartbeat_ticks = rng.choice((1, 2))
        return cls(
            member_count=rng.choice((2, 3, 3, 3, 5)),
            heartbeat_ticks=heartbeat_ticks,
            election_ticks=heartbeat_ticks * rng.choice((4, 6, 10)),
            recall_ticks=RECALL_FOREVER_TICKS,
            push_entries_max=rng.choice((1, 8)),
            inflight_ranges_max=rng.choice((1, 4)),
            proposal_interval_us=rng.choice((3_000, 5_000, 20_000)),
            transfers=rng.choice((0.0, 0.05)),
            loss=rng.choice((0.0, 0.0, 0.1)),
            duplicate=rng.choice((0.0, 0.2)),
            delay_us=rng.choice((300, 2_000, 5_000)),
            in_order=rng.random() < 0.4,
            flush_us=rng.choice((100, 3_000)),
            slow_hard_state=rng.choice((0.0, 0.3)),
            checkpoint=rng.choice((0.0, 0.1)),
            keep=rng.choice(tuple(Keep)),
            strike_interval_us=int(rng.choice((4, 10, 20)) * heartbeat_ticks * TICK_US),
            leader_bias=rng.choice((0.5, 0.9)),
            ambush=rng.choice((0.0, 0.2, 0.5)),
            moments=(Moment.ELECTED.value, Moment.HANDS_OVER.value),
            faults=(
                "older_disk",
                "older_disk",
                *(fault for fault in OLDER_DISKS_FAULTS if rng.random() < 0.35),
            ),
        )

    @classmethod
    def _changes(cls, rng: random.Random, faults: tuple[str, ...]) -> Self:
        """Draw conditions under which members come and go while leaders change."""
        heartbeat_ticks = rng.choice((1, 2))
        member_count = rng.choice((3, 4, 4, 5, 5, 6))
        return cls(
            member_count=member_count,
            voter_count=rng.choice((1, 2, 3, 3, 3, 4, 4, 5)) % (member_count + 1),
            heartbeat_ticks=heartbeat_ticks,
            election_ticks=heartbeat_ticks * rng.choice((4, 6)),
            push_entries_max=rng.choice((1, 8)),
            inflight_ranges_max=rng.choice((1, 4)),
            proposal_interval_us=rng.choice((3_000, 5_000, 20_000)),
            proposal_entries_max=rng.choice((1, 4)),
            transfers=rng.choice((0.0, 0.02)),
            changes=rng.choice((0.1, 0.3, 0.6)),
            loss=rng.choice((0.0, 0.0, 0.1)),
            duplicate=rng.choice((0.0, 0.2)),
            delay_us=rng.choice((300, 2_000, 2_000, 10_000)),
            in_order=rng.random() < 0.4,
            notice_link=rng.choice((0.0, 1.0)),
            real_bytes=rng.random() < 0.1,
            flush_us=rng.choice((100, 3_000)),
            slow_hard_state=rng.choice((0.0, 0.0, 0.3)),
            checkpoint=rng.choice((0.0, 0.1)),
            keep=rng.choice(tuple(Keep)),
            strike_interval_us=int(rng.choice((0, 4, 10, 20)) * heartbeat_ticks * TICK_US),
            leader_bias=rng.choice((0.5, 0.9)),
            ambush=rng.choice((0.0, 0.2, 0.5, 0.9)),
            moments=(Moment.ELECTED.value, Moment.CHANGES.value),
            faults=(
                "reshape",
                "isolate",
                *rng.choice(((), ("remove_front",) * 2)),
                *(fault for fault in faults if rng.random() < 0.25),
            ),
        )

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
