"""What one seed's group has to live with.

Each seed draws its own few faults and rates ("swarm testing"): a run with every fault at once makes
no progress worth checking.
"""

import random
from dataclasses import dataclass
from typing import Self

from dledger_sim.disk import Keep

TICK_US = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Sizes, speeds and rates; the defaults are a calm group."""

    member_count: int = 3
    heartbeat_ticks: int = 5
    election_ticks: int = 20
    push_entries_max: int = 64
    inflight_ranges_max: int = 8
    proposal_interval_us: int = 10_000
    proposal_entries_max: int = 4
    # Network.
    loss: float = 0.0
    duplicate: float = 0.0
    delay_us: int = 300
    in_order: bool = True
    split_push: float = 0.0
    """How often the shell sends a push in two pieces."""
    notice_link: float = 1.0
    """How often a member learns that a connection broke or came back."""
    # Disk.
    flush_us: int = 1_000
    slow_hard_state: float = 0.0
    """How often saving term and vote takes long enough for other inputs to come between."""
    checkpoint: float = 0.0
    """How often the committed index is written down."""
    keep: Keep = Keep.SOMETHING
    crash_in_ready: float = 0.0
    """How often a member dies in the middle of a Ready."""
    # Nemesis.
    strike_interval_us: int = 0
    """Mean time between strikes; 0 for none."""
    leader_bias: float = 0.0
    """How often a strike is aimed at a leader."""
    ambush: float = 0.0
    """How often a new leader is struck in its first few round trips."""
    faults: tuple[str, ...] = ()
    """Names of what a strike may be: see `nemesis`."""

    @classmethod
    def drawn(cls, rng: random.Random, faults: tuple[str, ...]) -> Self:
        """Draw a seed's conditions."""
        heartbeat_ticks = rng.choice((1, 2, 3))
        election_ticks = heartbeat_ticks * rng.choice((3, 4, 6))
        return cls(
            member_count=rng.choice((1, 2, 3, 3, 3, 3, 4, 5, 5, 5)),
            heartbeat_ticks=heartbeat_ticks,
            election_ticks=election_ticks,
            push_entries_max=rng.choice((1, 2, 8, 64)),
            inflight_ranges_max=rng.choice((1, 2, 4, 16)),
            proposal_interval_us=rng.choice((2_000, 5_000, 20_000)),
            proposal_entries_max=rng.choice((1, 1, 4, 10)),
            loss=rng.choice((0.0, 0.0, 0.02, 0.1, 0.3)),
            duplicate=rng.choice((0.0, 0.0, 0.05, 0.2)),
            delay_us=rng.choice((200, 2_000, 10_000, 30_000)),
            in_order=rng.random() < 0.4,
            split_push=rng.choice((0.0, 0.3)),
            notice_link=rng.choice((0.0, 0.5, 1.0)),
            flush_us=rng.choice((100, 3_000, 20_000, 100_000)),
            slow_hard_state=rng.choice((0.0, 0.0, 0.3)),
            checkpoint=rng.choice((0.0, 0.1)),
            keep=rng.choice(tuple(Keep)),
            crash_in_ready=rng.choice((0.0, 0.0, 0.002, 0.01)),
            strike_interval_us=int(rng.choice((0, 0.3, 0.7, 1, 3)) * election_ticks * TICK_US),
            leader_bias=rng.choice((0.0, 0.5, 0.9, 1.0)),
            ambush=rng.choice((0.0, 0.0, 0.5, 0.9)),
            faults=tuple(fault for fault in faults if rng.random() < 0.5),
        )

    @property
    def member_ids(self) -> tuple[str, ...]:
        """n0, n1 and so on."""
        return tuple(f"n{number}" for number in range(self.member_count))
