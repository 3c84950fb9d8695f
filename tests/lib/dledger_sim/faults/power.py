"""Conditions of groups with AsyncFlush, of which hosts lose power, one or several at once."""

import dataclasses
import random

from dledger_sim.group.conditions import RECALL_FOREVER_TICKS, TICK_US, Conditions
from dledger_sim.group.moments import Moment

CHANGES_RATE = 0.5
"""Share of the seeds in which members are added and removed."""
SWITCHES_RATE = 0.5
"""Share of the seeds in which members start again with the other flush mode."""
OTHER_FAULTS = ("crash", "isolate", "reset_link", "cut_one_way", "clog")


def drawn(rng: random.Random) -> Conditions:
    """Draw conditions under which leaders die after a follower has lost power; in half of them,
    members are added and removed.

    What a host loses is known to the others, which stay up until its member has asked them.
    """
    heartbeat_ticks = rng.choice((1, 2))
    drawn = Conditions(
        member_count=rng.choice((3, 3, 3, 5)),
        heartbeat_ticks=heartbeat_ticks,
        election_ticks=heartbeat_ticks * rng.choice((4, 6, 10)),
        recall_ticks=RECALL_FOREVER_TICKS,
        push_entries_max=rng.choice((1, 8, 64)),
        inflight_ranges_max=rng.choice((1, 4)),
        proposal_interval_us=rng.choice((2_000, 5_000, 20_000)),
        reads=0.3,
        loss=rng.choice((0.0, 0.0, 0.1)),
        delay_us=rng.choice((300, 2_000, 5_000)),
        in_order=rng.random() < 0.4,
        async_flush=True,
        slow_hard_state=rng.choice((0.0, 0.3)),
        strike_interval_us=int(rng.choice((6, 12)) * heartbeat_ticks * TICK_US),
        leader_bias=rng.choice((0.5, 0.9)),
        ambush=rng.choice((0.0, 0.2)),
        moments=(Moment.ELECTED.value,),
        faults=(
            *("power_loss",) * 3,
            *("power_losses",) * 2,
            *(fault for fault in OTHER_FAULTS if rng.random() < 0.35),
        ),
    )
    if rng.random() < CHANGES_RATE:
        drawn = _with_changes(drawn, rng)
    switches = rng.choice((0.3, 0.6)) if rng.random() < SWITCHES_RATE else 0.0
    return dataclasses.replace(drawn, flush_switches=switches)


def _with_changes(drawn: Conditions, rng: random.Random) -> Conditions:
    return dataclasses.replace(
        drawn,
        member_count=rng.choice((4, 5, 5, 6)),
        voter_count=rng.choice((2, 3, 3, 3, 4)),
        changes=rng.choice((0.1, 0.3)),
        faults=(*drawn.faults, *("reshape",) * rng.randint(0, 2)),
    )
