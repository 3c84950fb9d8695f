"""Families of runs beside the ordinary seeds, each with conditions of its own.

The seeds of a family are counted from 0, and all ordinary seeds run as they did before.
"""

import random
from collections.abc import Callable
from typing import Final

from dledger_sim.faults import broker_lives, disjoint_rot, floods, power, replays, slow_cuts
from dledger_sim.group.conditions import Conditions

FAMILIES: Final[dict[str, Callable[[random.Random], Conditions]]] = {
    "load": floods.drawn,
    "power": power.drawn,
    "cuts": slow_cuts.drawn,
    "mending": disjoint_rot.drawn,
    "broker": broker_lives.drawn,
    "administered": broker_lives.administered,
    "replays": replays.drawn,
}


def conditions_of(family: str, seed: int) -> Conditions:
    """Draw the conditions of a family's seed."""
    return FAMILIES[family](random.Random(f"{family} {seed}"))
