"""How long the turns of members' event loops were, read from their metrics."""

import json
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from tools.groups.node_group import NodeGroup

TURN_S_MAX: Final = 0.005
"""No request may cost a member more processor time in one turn of its loop."""
LARGEST_ENTRY_TURN_S_MAX: Final = 0.02
"""No request with an entry of the largest size may cost a member more in one turn of its loop."""
STRAY_BOUNDS_S: Final = {0.005: 0.05, 0.01: 0.05, 0.02: 0.05, 0.05: 0.1, 0.1: 0.25, 0.25: 0.5}
"""The bounds of the metric's buckets, and for each the bound of stray turns."""
STRAY_TURNS: Final = 3
REFERENCE: Final = b"[" + b"1.5," * (16 << 10) + b"0]"
REFERENCE_S: Final = 0.0014
"""How long json.loads takes for REFERENCE on the machine of docs/benchmarks.md."""
ALL_BOUNDS_S: Final = {*STRAY_BOUNDS_S, *STRAY_BOUNDS_S.values()}
_TURN: Final = "dledger_node_loop_turn_processor"
_LAG: Final = "dledger_node_loop_lag"


def metrics(group: NodeGroup, member: str) -> dict[str, float]:
    """Return every sample of a member's metrics by its name and labels."""
    lines = group.get(member, "/metrics")[1].decode().splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, value in samples}


def longer_turns(group: NodeGroup, member: str, bound_s: float) -> int:
    """Return how many turns took more processor time than `bound_s`, a bound of a bucket.

    The processor time of the loop's own thread does not depend on other load of the machine.
    """
    return _longer(metrics(group, member), bound_s)


def _longer(samples: dict[str, float], bound_s: float) -> int:
    longer = (
        samples[f"{_TURN}_seconds_count"] - samples[f'{_TURN}_seconds_bucket{{le="{bound_s}"}}']
    )
    return int(longer)


def slowness() -> float:
    """Return by what factor this machine is slower now than that of the bounds; at least 1.

    The speed of a shared processor changes by a factor of three from hour to hour.
    """
    took_s = []
    for _ in range(5):
        begun_s = time.thread_time()
        json.loads(REFERENCE)
        took_s.append(time.thread_time() - begun_s)
    return max(1.0, min(took_s) / REFERENCE_S)


def bound_here(bound_s: float, slower: float) -> float:
    """Return the least bound of a bucket that is no stricter on a machine slower by this factor."""
    return min((each for each in STRAY_BOUNDS_S if each >= bound_s * slower), default=0.25)


class Turns(NamedTuple):
    """The turns of one member's loop since a watch began."""

    member: str
    longest_s: float
    """Processor time of the longest turn since the member's start."""
    latest_s: float
    """The longest time by which a timer fired late since the member's start."""
    too_long: str | None
    """A message on the turns that were too long; None if none was."""


class TurnWatch:
    """Watches the turns of members from now on.

    STRAY_TURNS turns may take up to `STRAY_BOUNDS_S` of the bound: other work that shares the
    processor's caches doubles the time of a turn now and then, and the first use of memory for an
    entry of the largest size costs the kernel up to 25 ms (6,000 page faults). On a slower
    machine, the bound is that of a higher bucket.
    """

    def __init__(self, group: NodeGroup, members: Iterable[str]) -> None:
        self._group = group
        self._before = {
            member: {bound_s: _longer(samples, bound_s) for bound_s in ALL_BOUNDS_S}
            for member in members
            for samples in [metrics(group, member)]
        }
        self._slower = slowness()

    def turns(self, bound_s: float = TURN_S_MAX) -> list[Turns]:
        """Return the turns of each member, compared with a bound of their processor time."""
        bound_s = bound_here(bound_s, max(self._slower, slowness()))
        return [self._turns(member, bound_s) for member in self._before]

    def _turns(self, member: str, bound_s: float) -> Turns:
        samples, before = metrics(self._group, member), self._before[member]
        stray_s = STRAY_BOUNDS_S[bound_s]
        longer = _longer(samples, bound_s) - before[bound_s]
        far_longer = _longer(samples, stray_s) - before[stray_s]
        longest_s = samples[f"{_TURN}_longest_seconds"]
        too_long = None
        if longer > (0 if far_longer else STRAY_TURNS):
            too_long = (
                f"{longer} turns of {member} took more than {bound_s * 1000:g} ms of the "
                f"processor, {far_longer} more than {stray_s * 1000:g}; the longest since its "
                f"start took {longest_s * 1000:.1f} ms"
            )
        return Turns(member, longest_s, samples[f"{_LAG}_longest_seconds"], too_long)
