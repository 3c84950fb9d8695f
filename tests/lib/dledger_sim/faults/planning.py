"""Plans of strikes: acts with their delays, and the times and peers that strikes draw."""

import random
from typing import TypeAlias

from dledger_sim.faults.acts import Act
from dledger_sim.group.cluster import SimCluster
from dledger_sim.group.conditions import TICK_US

Planned: TypeAlias = list[tuple[int, Act]]
"""Acts with their delays in µs, at least 1."""


def peers_of(cluster: SimCluster, target: str) -> list[str]:
    """Return all members except the target."""
    return [peer_id for peer_id in cluster.conditions.member_ids if peer_id != target]


def some_time_us(cluster: SimCluster, rng: random.Random) -> int:
    """Draw a duration between one tick and four times the election ticks."""
    return rng.randint(1, 4 * cluster.conditions.election_ticks) * TICK_US
