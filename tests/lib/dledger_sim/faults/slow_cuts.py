"""Runs in which logs are cut and replaced slowly, in a thread, while the group continues."""

import dataclasses
import random

from dledger_sim.faults import strikes
from dledger_sim.group.conditions import Conditions


def drawn(rng: random.Random) -> Conditions:
    """Draw conditions under which leaders are struck at critical moments, which cuts many logs."""
    base = strikes.drawn_with_state(rng) if rng.random() < 0.25 else strikes.drawn(rng)
    return dataclasses.replace(base, slow_change=rng.choice((0.3, 1.0)))
