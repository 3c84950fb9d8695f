"""Faults of members, their disks and their membership."""

import random
from typing import Final

from dledger_sim.faults.planning import Planned, peers_of, some_time_us
from dledger_sim.faults.reshaping import likely_kinds
from dledger_sim.group.cluster import SimCluster
from dledger_sim.group.conditions import TICK_US

UNFLUSHED_US_MAX: Final = 3 * TICK_US
"""Time after which everything is flushed."""


def reshape(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """Request one to three membership changes of the target in quick succession."""
    raft = cluster.members[target].raft
    if raft is None:
        return []
    planned: Planned = []
    delay_us = 1
    for _ in range(rng.randint(1, 3)):
        member_id = rng.choice(cluster.conditions.member_ids)
        kind = rng.choice(likely_kinds(raft.membership, member_id))
        planned.append((delay_us, ("change", target, kind, member_id)))
        delay_us += 1 + int(rng.random() * 2 * cluster.conditions.delay_us)
    return planned


def crash(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    return [(1, ("crash", target, some_time_us(cluster, rng)))]


def lose_volume(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """Empty or damage a disk: the target's, or that of a peer that has just helped to elect another
    leader, and then sees only the target, which does not know of that leader.
    """
    kept_rate = rng.choice((None, None, rng.random(), 1.0))
    if rng.random() < 0.5:
        return [(1, ("lose_volume", target, some_time_us(cluster, rng), kept_rate))]
    peers = peers_of(cluster, target)
    victim = rng.choice(peers) if peers else target
    return _strike_behind(cluster, target, victim, rng, "lose_volume", kept_rate)


def _strike_behind(
    cluster: SimCluster, target: str, victim: str, rng: random.Random, act: str, *details: object
) -> Planned:
    """Strike the victim's volume while the target is cut off; then it sees only the target."""
    peers = peers_of(cluster, target)
    others = [peer_id for peer_id in peers if peer_id != victim]
    hidden = [target] if rng.random() < 0.5 else [target, victim]
    pairs = [pair for a in hidden for b in others for pair in ((a, b), (b, a))]
    elected_us = rng.randint(2, 6) * cluster.conditions.heartbeat_ticks * TICK_US
    return [
        (1, ("heal",)),
        (2, ("split", [target])),
        (3, ("reset", [(target, peer_id) for peer_id in peers])),
        (elected_us, (act, victim, 1 + rng.randrange(TICK_US), *details)),
        (elected_us + 1, ("heal",)),
        (elected_us + 2, ("cut", pairs)),
        (elected_us + 2 + some_time_us(cluster, rng), ("heal",)),
    ]


def older_disk(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """Copy a disk and roll it back later: the target's, or that of a peer that has meanwhile helped
    to elect another leader, and then sees only the target.
    """
    act = "restore_log" if rng.random() < 0.2 else "restore_volume"
    peers = peers_of(cluster, target)
    victim = rng.choice((target, *peers))
    planned = [(1, ("copy_volume", victim))]
    if victim == target or rng.random() < 0.3:
        later_us = 2 + some_time_us(cluster, rng)
        return [*planned, (later_us, (act, victim, 1 + rng.randrange(TICK_US)))]
    return [*planned, *_strike_behind(cluster, target, victim, rng, act)]


def power_loss(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """Let the host of one member lose power and what was not flushed yet. Then its leader may die,
    once it has reported what it remembers, and the others may be alone.
    """
    victim = rng.choice((target, *peers_of(cluster, target)))
    lost_us = 2 + rng.randrange(UNFLUSHED_US_MAX)
    planned: Planned = [(1, ("copy_volume", victim)), (lost_us, ("lose_power", [victim], TICK_US))]
    if rng.random() < 0.6:
        dies_us = lost_us + 2 * TICK_US + some_time_us(cluster, rng) // 4
        planned.append((dies_us, ("crash", target, some_time_us(cluster, rng))))
    return planned


def power_losses(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """Let the hosts of a majority lose power at once, but not the target's. Then the target, which
    may lead, may die once it has reported what it remembers.
    """
    peers = peers_of(cluster, target)
    victims = rng.sample(peers, len(peers) // 2 + 1)
    lost_us = 2 + rng.randrange(UNFLUSHED_US_MAX)
    planned: Planned = [(1, ("copy_volume", victim)) for victim in victims]
    planned.append((lost_us, ("lose_power", victims, TICK_US)))
    if rng.random() < 0.4:
        dies_us = lost_us + 2 * TICK_US + some_time_us(cluster, rng) // 4
        planned.append((dies_us, ("crash", target, some_time_us(cluster, rng))))
    return planned


def remove_front(_: SimCluster, target: str, rng: random.Random) -> Planned:
    return [(1, ("remove_front", target, max(rng.random(), rng.random())))]


def rot_snapshot(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    if rng.random() < 0.5:
        return [(1, ("rot_snapshot", target))]
    return [(1, ("rot_snapshot", target, some_time_us(cluster, rng)))]


def leave_behind(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """Cut the target off until its peers have removed the entries that it lacks. Or let the target
    remove as many entries as it can while its last confirmations are lost.
    """
    peers = peers_of(cluster, target)
    if rng.random() < 0.3:
        pairs = [(target, peer_id) for peer_id in peers]
        return [(1, ("reset", pairs)), (2, ("remove_front", target, 1.0))]
    later_us = 3 + some_time_us(cluster, rng)
    return [
        (1, ("heal",)),
        (2, ("split", [target])),
        *((later_us, ("remove_front", peer_id, 1.0)) for peer_id in peers),
        (later_us + 1, ("heal",)),
    ]


def power_cut(cluster: SimCluster, _: str, rng: random.Random) -> Planned:
    members = cluster.conditions.member_ids
    downs_us = [(member_id, some_time_us(cluster, rng) // 4) for member_id in members]
    return [(1, ("power_cut", downs_us))]


def pause(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    return [(1, ("pause", target, some_time_us(cluster, rng)))]


def fill_disk(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    return [(1, ("fill_disk", target, some_time_us(cluster, rng)))]
