"""How long the turns of a member's event loop were, read from its metrics."""

import contextlib
import json
import time
from collections.abc import Iterator

from dledger_group.damaged import wait_until_level
from tools.groups.node_group import NodeGroup

TURN_S_MAX = 0.005
"""No request may cost a member more processor time in one turn of its loop."""
LARGEST_ENTRY_TURN_S_MAX = 0.02
"""The same for a request with an entry of the largest size."""
STRAY_BOUNDS_S = {0.005: 0.05, 0.01: 0.05, 0.02: 0.05, 0.05: 0.1, 0.1: 0.25, 0.25: 0.5}
"""The bounds of the metric's buckets, and for each the one that stray turns have."""
STRAY_TURNS = 3
REFERENCE = b"[" + b"1.5," * (16 << 10) + b"0]"
REFERENCE_S = 0.0014
"""What the standard library takes to read REFERENCE on the machine of docs/benchmarks.md."""
ALL_BOUNDS_S = {*STRAY_BOUNDS_S, *STRAY_BOUNDS_S.values()}
_TURN = "dledger_node_loop_turn_processor_seconds"


def metrics(group: NodeGroup, member: str) -> dict[str, float]:
    """Return every sample of a member's metrics by its name and labels."""
    lines = group.get(member, "/metrics")[1].decode().splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, value in samples}


def longer_turns(group: NodeGroup, member: str, bound_s: float) -> int:
    """Return how many turns took more processor time than `bound_s`, a bound of a bucket.

    Processor time of the loop's own thread does not depend on what else the machine does.
    """
    samples = metrics(group, member)
    return int(samples[f"{_TURN}_count"] - samples[f'{_TURN}_bucket{{le="{bound_s}"}}'])


def slowness() -> float:
    """Return how many times longer than the machine of the bounds this one takes now; at least 1.

    The speed of a shared processor changes by a factor of three from hour to hour.
    """
    took_s = []
    for _ in range(5):
        begun_s = time.thread_time()
        json.loads(REFERENCE)
        took_s.append(time.thread_time() - begun_s)
    return max(1.0, min(took_s) / REFERENCE_S)


def bound_here(bound_s: float, slower: float) -> float:
    """Return the least bound of a bucket that is as strict on a machine so much slower."""
    return min((each for each in STRAY_BOUNDS_S if each >= bound_s * slower), default=0.25)


@contextlib.contextmanager
def no_longer_turn(group: NodeGroup, member: str, bound_s: float = TURN_S_MAX) -> Iterator[None]:
    """Check that no turn of the member takes more processor time than this during the block.

    STRAY_TURNS turns may take up to `STRAY_BOUNDS_S` of the bound: other work that shares the
    processor's caches doubles the time of a turn now and then, and the first use of memory for an
    entry of the largest size costs the kernel up to 25 ms (6,000 page faults). On a slower
    machine, the bound is that of a higher bucket.

    The members are level when the block begins. Otherwise a follower's turn for an entry that was
    appended before, of the largest size perhaps, would count.
    """
    wait_until_level(group)
    before, slower = {each: longer_turns(group, member, each) for each in ALL_BOUNDS_S}, slowness()
    yield
    bound_s = bound_here(bound_s, max(slower, slowness()))
    stray_s = STRAY_BOUNDS_S[bound_s]
    longer = longer_turns(group, member, bound_s) - before[bound_s]
    far_longer = longer_turns(group, member, stray_s) - before[stray_s]
    longest_s = metrics(group, member)["dledger_node_loop_turn_processor_longest_seconds"]
    allowed = 0 if far_longer else STRAY_TURNS
    assert longer <= allowed, (
        f"{longer} turns of {member} took more than {bound_s * 1000:g} ms of the processor, "
        f"{far_longer} more than {stray_s * 1000:g}; "
        f"the longest since its start took {longest_s * 1000:.1f} ms"
    )
