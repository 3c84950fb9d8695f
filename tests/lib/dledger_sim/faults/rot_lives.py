"""Runs with rotten log entries: their conditions, and the strikes that cause the rot.

A rotten entry has an effect only when it is read from the disk, which needs a restart since it was
written. The strikes therefore keep members away until the others have restarted with entries that
these members lack.
"""

import dataclasses
import random
from typing import Final

from dledger_sim.faults.acts import Act
from dledger_sim.faults.planning import Planned, peers_of, some_time_us
from dledger_sim.faults.rotting import LOOK_US
from dledger_sim.group.cluster import SimCluster
from dledger_sim.group.conditions import TICK_US, Conditions
from dledger_sim.group.disk import Keep
from dledger_sim.group.moments import Moment
from dledger_sim.group.rotting_disk import RottingDisk

RESTART_TICKS_MAX: Final = 5
TWICE_RATE: Final = 0.1
ENTRIES: Final = (1, 1, 1, 2, 5)
"""Numbers of entries that rot at once."""
OTHER_FAULTS: Final = (
    "crash", "isolate", "reset_link", "cut_one_way", "clog", "lose_volume", "remove_front",
)  # fmt: skip


def with_rot(base: Conditions, rng: random.Random) -> Conditions:
    """Return conditions with rot in addition to their other faults."""
    return dataclasses.replace(
        base,
        checkpoint=max(base.checkpoint, rng.choice((0.2, 1.0))),
        strike_interval_us=base.strike_interval_us or 3 * base.election_ticks * TICK_US,
        ambush=max(base.ambush, rng.choice((0.0, 0.3, 0.7))),
        moments=tuple(dict.fromkeys((*base.moments, Moment.ELECTED.value))),
        faults=(*base.faults, "rot_entry", *rng.choice(((), ("rot_behind",) * 2))),
    )


def decaying(rng: random.Random) -> Conditions:
    """Draw conditions with many reads from disks and few other faults."""
    heartbeat_ticks = rng.choice((1, 2))
    return Conditions(
        member_count=rng.choice((3, 3, 3, 4, 5)),
        heartbeat_ticks=heartbeat_ticks,
        election_ticks=heartbeat_ticks * rng.choice((4, 6)),
        push_entries_max=rng.choice((1, 4, 16)),
        inflight_ranges_max=rng.choice((1, 4)),
        proposal_interval_us=rng.choice((3_000, 6_000)),
        reads=rng.choice((0.2, 0.5)),
        transfers=rng.choice((0.0, 0.05)),
        loss=rng.choice((0.0, 0.0, 0.1)),
        duplicate=rng.choice((0.0, 0.2)),
        delay_us=rng.choice((300, 2_000, 5_000)),
        in_order=rng.random() < 0.4,
        split_push=rng.choice((0.0, 0.3)),
        real_bytes=rng.random() < 0.1,
        flush_us=rng.choice((100, 3_000)),
        slow_hard_state=rng.choice((0.0, 0.3)),
        keep=rng.choice(tuple(Keep)),
        crash_in_ready=rng.choice((0.0, 0.0, 0.002)),
        strike_interval_us=int(rng.choice((36, 60)) * heartbeat_ticks * TICK_US),
        leader_bias=rng.choice((0.2, 0.5, 0.9)),
        faults=(
            "rot_behind",
            "power_cut",
            *(fault for fault in OTHER_FAULTS if rng.random() < 0.3),
        ),
    )


def rot_entry(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """Let entries of the target rot. Then the target may crash, or receive the leadership and a
    read of a rotten entry; or it crashes together with the leader that counted its copy.
    """
    if rng.random() < TWICE_RATE:
        return _twice(cluster, target, rng)
    planned, rot_us = _restarted(cluster, target, rng)
    count = rng.choice(ENTRIES)
    rot: Act = ("rot_entry", target, _index(cluster, target, rng), count)
    drawn = rng.random()
    if drawn < 0.3:
        return [*planned, (rot_us, rot)]
    if drawn < 0.5:
        return [*planned, (rot_us, (*rot, some_time_us(cluster, rng)))]
    if drawn < 0.8:
        index = rng.randint(0, len(cluster.members[target].disk.cached))
        led_us = rot_us + _handing_over_us(cluster)
        return [
            *planned,
            (rot_us, ("rot_entry", target, index, count)),
            *_handed_over(cluster, target, rot_us + 1),
            (led_us, ("read", target, index, 0)),
        ]
    leaders = [member.member_id for member in cluster.members.values() if member.leads]
    counted_by = rng.choice(leaders or cluster.conditions.member_ids)
    return [
        *planned,
        (rot_us, (*rot, some_time_us(cluster, rng))),
        (rot_us + 1, ("crash", counted_by, some_time_us(cluster, rng))),
    ]


def _twice(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """Let the entries rot that a start verifies, and again before the member is healed.

    Meanwhile, the links to the member are clogged, but it can still ask its peers for a remedy.
    """
    newest = len(cluster.members[target].disk.cached)
    down_us = rng.randint(1, RESTART_TICKS_MAX) * TICK_US
    again_us = 2 + down_us + 2 * LOOK_US
    links = [(peer_id, target) for peer_id in peers_of(cluster, target)]
    return [
        (1, ("heal",)),
        (2, ("rot_entry", target, newest, 1, down_us)),
        (2, ("clog", links, again_us + down_us + 2 * LOOK_US)),
        (again_us, ("rot_entry", target, newest, 1, down_us)),
    ]


def rot_behind(cluster: SimCluster, _: str, rng: random.Random) -> Planned:
    """Keep a follower away, restart the others with the entries that it lacks, transfer leadership
    to one of them, and let the entries rot there.
    """
    conditions = cluster.conditions
    election_us = conditions.election_ticks * TICK_US
    followers = [member.member_id for member in cluster.members.values() if not member.leads]
    behind = rng.choice(followers or conditions.member_ids)
    peers = peers_of(cluster, behind)
    victim = rng.choice(peers)
    lacking = len(cluster.members[behind].disk.cached) + rng.choice((0, 0, 1, 3))
    downs_us = [(peer_id, rng.randint(1, RESTART_TICKS_MAX) * TICK_US) for peer_id in peers]
    restarted_us = 3 + rng.randint(1, 2) * election_us
    led_us = restarted_us + rng.randint(4, 5) * election_us
    rot_us = led_us + _handing_over_us(cluster)
    away: Act = ("split", [behind]) if rng.random() < 0.3 else ("crash", behind, rot_us)
    return [
        (1, ("heal",)),
        (2, away),
        (restarted_us, ("power_cut", downs_us)),
        *_handed_over(cluster, victim, led_us),
        (rot_us, ("rot_entry", victim, lacking, rng.choice(ENTRIES))),
        (rot_us + 1, ("heal",)),
    ]


def _handed_over(cluster: SimCluster, target: str, at_us: int) -> Planned:
    """Request a transfer to the target from every other member, one of which may lead."""
    return [(at_us, ("transfer", peer_id, target)) for peer_id in peers_of(cluster, target)]


def _handing_over_us(cluster: SimCluster) -> int:
    """Return the usual duration of a transfer."""
    return 2 * TICK_US + 10 * cluster.conditions.delay_us


def _restarted(cluster: SimCluster, target: str, rng: random.Random) -> tuple[Planned, int]:
    """Plan a restart if the member would read nothing from its disk; return when it is up."""
    disk = cluster.members[target].disk
    assert isinstance(disk, RottingDisk)
    if disk.seen_index > disk.begin_index or rng.random() < 0.3:
        return [], 1
    down_us = rng.randint(1, RESTART_TICKS_MAX) * TICK_US
    return [(1, ("crash", target, down_us))], down_us + 1 + some_time_us(cluster, rng) // 4


def _index(cluster: SimCluster, target: str, rng: random.Random) -> int:
    """Draw an index: the first entry that a member lacks, one soon after it, the end, or any."""
    length = len(cluster.members[target].disk.cached)
    lacking = min(len(member.disk.cached) for member in cluster.members.values())
    return rng.choice((lacking, lacking + rng.randint(0, 3), length, rng.randint(0, length)))
