"""Runs in which entries rot on several members, each entry sound on another one.

The members mend their logs from each other. No volume is lost and no log loses its front, so that
what is sound somewhere stays there.
"""

import dataclasses
import random
from typing import Final

from dledger_sim.faults import rot_lives
from dledger_sim.faults.acts import Act
from dledger_sim.faults.planning import Planned, some_time_us
from dledger_sim.group.cluster import SimCluster
from dledger_sim.group.conditions import Conditions

OTHER_FAULTS: Final = ("crash", "isolate", "reset_link", "cut_one_way", "clog", "pause")
WINDOW_ENTRIES: Final = 12


def drawn(rng: random.Random) -> Conditions:
    """Draw conditions with much rot and few other faults."""
    base = rot_lives.decaying(rng)
    return dataclasses.replace(
        base,
        mends=True,
        checkpoint=rng.choice((0.2, 1.0)),
        strike_interval_us=base.strike_interval_us // rng.choice((2, 4, 8)),
        faults=(
            "rot_apart",
            "rot_apart",
            "rot_entry",
            *rng.choice(((), ("rot_behind",))),
            *(fault for fault in OTHER_FAULTS if rng.random() < 0.3),
        ),
    )


def rot_apart(cluster: SimCluster, _: str, rng: random.Random) -> Planned:
    """Let neighboring entries rot, each on some members but not on all; some members restart."""
    member_ids = cluster.conditions.member_ids
    committed_index = max(member.disk.checkpoint for member in cluster.members.values())
    last_index = committed_index - rng.choice((0, 0, rng.randint(0, max(0, committed_index))))
    density = rng.choice((0.2, 0.5, 1.0))
    planned: Planned = []
    for index in range(max(0, last_index - rng.randint(1, WINDOW_ENTRIES)), last_index):
        if rng.random() < density:
            victims = rng.sample(member_ids, rng.randint(1, len(member_ids) - 1))
            planned += [(1, ("rot_entry", victim, index, 1)) for victim in victims]
    restarts: Act = (
        "power_cut",
        [(one, some_time_us(cluster, rng)) for one in member_ids if rng.random() < 0.5],
    )
    return [*planned, (2, restarts)] if rng.random() < 0.5 else planned
