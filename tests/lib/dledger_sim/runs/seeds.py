"""The conditions of a seed. In one seed of eight, members keep a state. In one of twenty-five,
strikes set up a specific rare situation; in one of eleven of all others, log entries rot. In one of
fourteen of those without rot, members that do not lead answer reads; half of these draw conditions
for it.

Separate random streams pick these seeds, so that all other seeds run as they did before.
"""

import dataclasses
import random

from dledger_sim.faults import strikes
from dledger_sim.faults.nemesis import ANYWHERE
from dledger_sim.faults.rot_lives import decaying, with_rot
from dledger_sim.group.conditions import TICK_US, Conditions
from dledger_sim.group.disk import Keep
from dledger_sim.group.moments import Moment
from dledger_sim.runs import drawing

STATES_RATE = 0.125
SHARP_RATE = 0.04
"""Share of the seeds without a state."""
SHARP_STATES_RATE = 0.06
"""Share of the seeds with a state."""
BUSY_RATE = 0.6
ROT_RATE = 0.09
DECAYING_RATE = 0.5
FOLLOWER_READS_RATE = 0.07
AT_CUTS_RATE = 0.5
"""Share of the follower reads under conditions of their own, in groups that are cut in two."""
ROT_MEMBERS_MIN = 3
"""A smaller group cannot lose any disk."""
STATE_FAULTS = (
    "crash", "isolate", "reset_link", "clog", "pause", "lose_volume", "rot_snapshot",
    "fill_disk",
)  # fmt: skip


def keeps_state(seed: int) -> bool:
    """Return whether members keep a state in a seed's run."""
    return random.Random(f"state of seed {seed}").random() < STATES_RATE


def is_sharp(seed: int) -> bool:
    """Return whether a seed's strikes set up one specific situation (`faults.strikes`)."""
    rate = SHARP_STATES_RATE if keeps_state(seed) else SHARP_RATE
    return random.Random(f"sharp strikes of seed {seed}").random() < rate


def rots(seed: int) -> bool:
    """Return whether log entries rot in a seed's run."""
    return not is_sharp(seed) and random.Random(f"rot of seed {seed}").random() < ROT_RATE


def reads_at_followers(seed: int) -> bool:
    """Return whether members that do not lead answer reads in a seed's run."""
    drawn = random.Random(f"follower reads of seed {seed}").random()
    return not is_sharp(seed) and not rots(seed) and drawn < FOLLOWER_READS_RATE


def conditions_of(seed: int, rng: random.Random) -> Conditions:
    """Draw a seed's conditions."""
    if is_sharp(seed):
        return strikes.drawn_with_state(rng) if keeps_state(seed) else strikes.drawn(rng)
    if rots(seed):
        return _with_rot(rng, with_states=keeps_state(seed))
    if reads_at_followers(seed):
        return _with_follower_reads(seed, rng)
    return with_state(rng) if keeps_state(seed) else drawing.drawn(rng, ANYWHERE)


def _with_follower_reads(seed: int, rng: random.Random) -> Conditions:
    if random.Random(f"cuts of seed {seed}").random() < AT_CUTS_RATE:
        return drawing.follower_reads(rng)
    base = with_state(rng) if keeps_state(seed) else drawing.drawn(rng, ANYWHERE)
    return dataclasses.replace(base, follower_reads=True, reads=max(base.reads, 0.3))


def _with_rot(rng: random.Random, *, with_states: bool) -> Conditions:
    """Draw conditions with rot, of a group that can lose a disk."""
    while True:
        if with_states:
            base = with_state(rng)
        else:
            calm = rng.random() < DECAYING_RATE
            base = decaying(rng) if calm else drawing.drawn(rng, ANYWHERE)
        if base.member_count >= ROT_MEMBERS_MIN and "older_disk" not in base.faults:
            return with_rot(base, rng)


def with_state(rng: random.Random) -> Conditions:
    """Draw conditions of a group whose members keep a state and need each other's snapshots."""
    base = _busy(rng) if rng.random() < BUSY_RATE else _any_without_state(rng)
    return dataclasses.replace(
        base,
        snapshot_entries=rng.choice((1, 4, 4, 16)),
        snapshots_reserved=rng.choice((1, 1, 2, 3)),
        chunk_bytes=rng.choice((8, 8, 16, 64)),
        state_us=rng.choice((200, 200, 3_000, 20_000)),
        strike_interval_us=base.strike_interval_us or 2 * base.election_ticks * TICK_US,
        ambush=max(base.ambush, rng.choice((0.0, 0.2, 0.5))),
        moments=(*base.moments, Moment.FETCHES.value),
        faults=(
            *base.faults,
            *("remove_front", "leave_behind", "leave_behind"),
            *(fault for fault in STATE_FAULTS if rng.random() < 0.3),
        ),
    )


def _any_without_state(rng: random.Random) -> Conditions:
    """Draw any conditions without leases and rollbacks.

    The faults of groups with a state include pauses, which break leases, and crashes of the peers
    that a rolled-back disk needs.
    """
    while True:
        drawn = drawing.drawn(rng, ANYWHERE)
        if not drawn.lease_ticks and "older_disk" not in drawn.faults:
            return drawn


def _busy(rng: random.Random) -> Conditions:
    """Draw a group that appends so much that log fronts are removed again and again."""
    heartbeat_ticks = rng.choice((1, 2))
    election_ticks = heartbeat_ticks * rng.choice((4, 6, 10))
    return Conditions(
        member_count=rng.choice((3, 3, 3, 4, 5)),
        heartbeat_ticks=heartbeat_ticks,
        election_ticks=election_ticks,
        recall_ticks=rng.choice((0, election_ticks)),
        push_entries_max=rng.choice((4, 16)),
        inflight_ranges_max=rng.choice((1, 4)),
        proposal_interval_us=rng.choice((3_000, 10_000)),
        proposal_entries_max=rng.choice((2, 4, 10)),
        reads=0.0,
        transfers=rng.choice((0.0, 0.05)),
        loss=rng.choice((0.0, 0.0, 0.05, 0.2)),
        duplicate=rng.choice((0.0, 0.2)),
        delay_us=rng.choice((300, 2_000, 5_000)),
        in_order=rng.random() < 0.4,
        real_bytes=rng.random() < 0.1,
        flush_us=rng.choice((100, 3_000)),
        checkpoint=rng.choice((0.0, 0.1)),
        keep=rng.choice(tuple(Keep)),
        crash_in_ready=rng.choice((0.0, 0.0, 0.002)),
        strike_interval_us=int(rng.choice((3, 6, 12)) * heartbeat_ticks * TICK_US),
        leader_bias=rng.choice((0.2, 0.5, 0.9)),
    )
