"""Runs in which applying the log takes long: members start again, and leaders die meanwhile."""

import random

from dledger_sim.group.conditions import TICK_US, Conditions


def drawn(rng: random.Random) -> Conditions:
    """Draw conditions of a calm network, in which members crash and then apply their whole log.

    A batch of eight entries takes as long as one or two heartbeat intervals, so that a member that
    starts again is behind for longer than an election takes. Clients append less than that.
    """
    heartbeat_ticks = rng.choice((1, 2))
    election_ticks = heartbeat_ticks * rng.choice((6, 10))
    return Conditions(
        member_count=rng.choice((3, 3, 3, 4, 5)),
        heartbeat_ticks=heartbeat_ticks,
        election_ticks=election_ticks,
        push_entries_max=rng.choice((4, 16, 64)),
        preferred_count=rng.choice((0, 0, 1)),
        proposal_interval_us=rng.choice((10_000, 20_000)),
        proposal_entries_max=2,
        reads=0.0,
        transfers=rng.choice((0.0, 0.1, 0.3)),
        notice_link=rng.choice((1.0, 0.5, 0.0)),
        flush_us=rng.choice((100, 1_000)),
        checkpoint=rng.choice((0.2, 1.0)),
        snapshot_entries=rng.choice((50, 1_000)),
        state_us=rng.choice((10_000, 20_000)),
        replays=True,
        strike_interval_us=int(rng.choice((1, 2, 4)) * election_ticks * TICK_US),
        leader_bias=rng.choice((0.3, 0.6, 0.9)),
        faults=("crash", "crash", "crash", *(("power_cut",) if rng.random() < 0.3 else ())),
    )
