"""Floods of requests: the conditions under which nothing but the load of clients is a fault."""

import random

from dledger_sim.faults.planning import Planned
from dledger_sim.group.cluster import SimCluster
from dledger_sim.group.conditions import TICK_US, Conditions
from dledger_sim.group.crowd import KINDS

SLOWNESS = (1, 1, 4, 80)
"""Factors by which a machine is slower than the one whose costs were measured, for example because
other programs use its processors.
"""
CONNECTIONS = (1, 4, 20)


def drawn(rng: random.Random) -> Conditions:
    """Draw conditions of a group that loses no messages and no members, under floods."""
    slowness = rng.choice(SLOWNESS)
    return Conditions(
        member_count=rng.choice((3, 3, 5)),
        heartbeat_ticks=5,
        election_ticks=30,
        recall_ticks=30,
        push_entries_max=rng.choice((8, 64)),
        # The group can handle its ordinary clients' requests. If these are few, only heartbeats
        # show that the leader is alive.
        proposal_interval_us=rng.choice((5_000, 20_000, 200_000)) * max(1, slowness // 6),
        reads=0.2,
        delay_us=rng.choice((200, 1_000)),
        flush_us=rng.choice((100, 3_000)),
        slow_hard_state=rng.choice((0.0, 0.3)),
        slowness=slowness,
        strike_interval_us=200_000,
        leader_bias=rng.choice((0.2, 0.9)),
        faults=("flood",),
    )


def flood(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """Let a crowd flood one member, or all, with requests for some election timeouts."""
    election_us = cluster.conditions.election_ticks * TICK_US
    kind, connections = rng.choice(sorted(KINDS)), rng.choice(CONNECTIONS)
    duration_us = rng.randint(1, 12) * election_us
    targets = cluster.conditions.member_ids if rng.random() < 0.3 else (target,)
    return [(1, ("flood", kind, one, connections, duration_us)) for one in targets]
