"""One seed's whole life: a while of faults in which nothing may go wrong, then calm, in which all
must be well again.
"""

import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from dledger_sim.cluster import SimCluster
from dledger_sim.conditions import TICK_US, Conditions
from dledger_sim.nemesis import FAULTS, Nemesis
from dledger_sim.transcript import Transcript
from dledger_sim.violation import ViolationError

SETTLE_ELECTION_TIMEOUTS = 20
PUSH_US = 4_000
"""How long one push and its flush may take in calm conditions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a run came to."""

    event_count: int
    virtual_s: float
    leader_count: int
    committed_count: int
    acknowledged_count: int


def simulate(
    seed: int,
    event_count: int,
    transcript: Transcript | None = None,
    *,
    conditions: Conditions | None = None,
    settle: bool = True,
) -> Summary:
    """Run one seed, under conditions of its own unless some are given.

    Without `settle`, only its life under faults, where all that can fail is safety.
    ViolationError says what went wrong, when, and how to see it again.
    """
    rng = random.Random(seed)
    cluster = SimCluster(conditions or Conditions.drawn(rng, tuple(FAULTS)), rng, transcript)
    try:
        _stress(cluster, rng, event_count)
        if settle:
            _settle(cluster)
    except Exception as error:
        raise ViolationError(
            f"seed {seed}, event {cluster.event_count}, {cluster.now_us / 1000:.2f} ms: "
            f"{type(error).__name__}: {error}\n"
            f"replay: PYTHONPATH=tests/lib python -m dledger_sim --seed {seed} "
            f"--events {event_count}"
        ) from error
    return Summary(
        event_count=cluster.event_count,
        virtual_s=cluster.now_us / 1e6,
        leader_count=cluster.checker.leader_count,
        committed_count=len(cluster.checker.committed),
        acknowledged_count=cluster.checker.acknowledged_count,
    )


def _stress(cluster: SimCluster, rng: random.Random, event_count: int) -> None:
    """Let clients append and the nemesis strike, for a number of events."""
    conditions = cluster.conditions
    nemesis = Nemesis(cluster, rng)

    def client() -> None:
        believers = [member.member_id for member in cluster.members.values() if member.leads]
        asked = believers if believers and rng.random() < 0.9 else conditions.member_ids
        cluster.propose(rng.choice(asked), rng.randint(1, conditions.proposal_entries_max))

    def again(mean_us: int, action: Callable[[], None]) -> None:
        if cluster.event_count < event_count:
            action()
            plan(mean_us, action)

    def plan(mean_us: int, action: Callable[[], None]) -> None:
        cluster.after(int(rng.expovariate(1 / mean_us)), partial(again, mean_us, action))

    plan(conditions.proposal_interval_us, client)
    if conditions.strike_interval_us:
        plan(conditions.strike_interval_us, nemesis.strike)
    while cluster.event_count < event_count:
        cluster.step()
        nemesis.watch()
    nemesis.stop()


def _settle(cluster: SimCluster) -> None:
    """End all faults: soon all members must follow one leader, and its next entry be committed."""
    calm = dataclasses.replace(
        cluster.conditions, loss=0.0, duplicate=0.0, delay_us=300, notice_link=1.0, flush_us=1_000,
        slow_hard_state=0.0, crash_in_ready=0.0, strike_interval_us=0,
    )  # fmt: skip
    longest_log = max(len(member.disk.cached) for member in cluster.members.values())
    timeout_us = SETTLE_ELECTION_TIMEOUTS * 2 * calm.election_ticks * TICK_US
    timeout_us += PUSH_US * longest_log // calm.push_entries_max
    cluster.calm(calm)
    cluster.run_until(cluster.agreed, timeout_us)
    leader = cluster.leader()
    assert leader is not None
    committed_count = len(cluster.checker.committed)
    cluster.propose(leader.member_id, 1)
    cluster.run_until(
        lambda: len(cluster.checker.committed) > committed_count and cluster.agreed(), timeout_us
    )
