"""Faults of the network: members are cut off, and messages are held back."""

import random

from dledger_sim.faults.planning import Planned, peers_of, some_time_us
from dledger_sim.group.cluster import SimCluster
from dledger_sim.group.conditions import TICK_US
from dledger_sim.group.running import NOTICE_US


def isolate(_: SimCluster, target: str, __: random.Random) -> Planned:
    return [(1, ("heal",)), (2, ("split", [target]))]


def disconnect(cluster: SimCluster, target: str, _: random.Random) -> Planned:
    """Break the target's connections. Its peers notice at once and elect another leader."""
    pairs = [(target, peer_id) for peer_id in peers_of(cluster, target)]
    return [(1, ("heal",)), (2, ("disconnect", pairs))]


def late_answers(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """Delay the answers to the target's last heartbeat round, and cut the target off meanwhile.

    The target still considers itself the leader long after the others have given up on it.
    """
    conditions, peers = cluster.conditions, peers_of(cluster, target)
    late_ticks_max = conditions.election_ticks - conditions.heartbeat_ticks
    late_us = rng.randint(late_ticks_max // 2, late_ticks_max) * TICK_US
    round_us = conditions.heartbeat_ticks * TICK_US
    to_target = [(peer_id, target) for peer_id in peers]
    return [
        (1, ("heal",)),
        (2, ("clog", to_target, round_us + late_us)),
        (2 + round_us, ("cut", [(target, peer_id) for peer_id in peers])),
        (1 + round_us + late_us, ("cut", to_target)),
    ]


def late_term(cluster: SimCluster, target: str, _: random.Random) -> Planned:
    """Let a witness learn of a candidate's term from a late answer, before its vote request.

    Between its own question and that answer, the witness receives a heartbeat of the target, which
    still leads. To set this up, the answers to the target's last round arrive late, so that the
    others miss the target before the target misses them. A reset makes a member ask again.
    """
    conditions, peers = cluster.conditions, peers_of(cluster, target)
    candidate, witness = peers[:2]  # with equal logs, the lower ID goes first
    link = (candidate, witness)
    to_target = [(peer, target) for peer in peers]
    from_target = [(target, peer) for peer in peers]
    round_us, election_us = (
        conditions.heartbeat_ticks * TICK_US,
        conditions.election_ticks * TICK_US,
    )
    turn_us = NOTICE_US + 5 * conditions.delay_us
    answered_us = election_us - 2 * round_us
    stands_us = answered_us + election_us - TICK_US - 4 * turn_us
    asks_us, hears_us, learns_us = (stands_us + turns * turn_us for turns in (1, 2, 3))
    held_us = stands_us + NOTICE_US + 1
    return [
        (1, ("heal",)),
        (1, ("cut", [link, (witness, candidate)])),
        (1, ("clog", to_target, answered_us)),
        (2 + round_us, ("cut", from_target)),
        (answered_us, ("cut", to_target)),
        (stands_us, ("heal",)),
        (stands_us, ("cut", [*from_target, *to_target])),
        (stands_us, ("reset", [link])),
        (held_us, ("clog", [link], learns_us - held_us)),
        (asks_us, ("reset", [link])),
        (hears_us, ("heal",)),
        (hears_us, ("cut", [(candidate, target), (target, candidate)])),
        (hears_us, ("clog", [link], learns_us - hears_us)),
        (hears_us, ("reset", [(target, witness)])),
        (learns_us, ("cut", [*from_target, *to_target])),
        (learns_us + TICK_US // 100, ("reset", [link])),
    ]


def hide(cluster: SimCluster, target: str, _: random.Random) -> Planned:
    """Cut off every other member that considers itself the leader."""
    pairs: list[tuple[str, str]] = []
    for member in cluster.members.values():
        if member.leads and member.member_id != target:
            for peer_id in peers_of(cluster, member.member_id):
                pairs += [(member.member_id, peer_id), (peer_id, member.member_id)]
    return [(1, ("cut", pairs))]


def hold_up(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """Delay a candidate's requests to its peers, and drop its requests to leaders."""
    held_us = rng.randint(1, cluster.conditions.election_ticks // 2) * TICK_US
    leaders = [member.member_id for member in cluster.members.values() if member.leads]
    peers = peers_of(cluster, target)
    return [
        (1, ("heal",)),
        (2, ("clog", [(target, peer) for peer in peers if peer not in leaders], held_us)),
        (2, ("cut", [(target, peer) for peer in peers if peer in leaders])),
    ]


def split(cluster: SimCluster, _: str, rng: random.Random) -> Planned:
    members = cluster.conditions.member_ids
    return [(1, ("split", [member_id for member_id in members if rng.random() < 0.5]))]


def cut_one_way(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    heard = rng.random() < 0.5
    peers = [peer_id for peer_id in peers_of(cluster, target) if rng.random() < 0.7]
    return [(1, ("cut", [(peer, target) if heard else (target, peer) for peer in peers]))]


def bridge(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """Split the group into halves that are connected only through the target."""
    peers = peers_of(cluster, target)
    rng.shuffle(peers)
    one, other = peers[: len(peers) // 2], peers[len(peers) // 2 :]
    pairs = [pair for a in one for b in other for pair in ((a, b), (b, a))]
    return [(1, ("cut", pairs))]


def reset_link(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    peers = [peer_id for peer_id in peers_of(cluster, target) if rng.random() < 0.5]
    return [(1, ("reset", [(target, peer_id) for peer_id in peers]))]


def clog(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    pairs = [
        pair
        for peer_id in peers_of(cluster, target)
        for pair in ((peer_id, target), (target, peer_id))
        if rng.random() < 0.7
    ]
    return [(1, ("clog", pairs, some_time_us(cluster, rng)))]


def swizzle_clog(cluster: SimCluster, _: str, rng: random.Random) -> Planned:
    """Clog some members one after another, each for a time of its own."""
    planned: Planned = []
    delay_us = 1
    for member_id in cluster.conditions.member_ids:
        if rng.random() < 0.6:
            pairs = [(peer_id, member_id) for peer_id in peers_of(cluster, member_id)]
            planned.append((delay_us, ("clog", pairs, some_time_us(cluster, rng))))
            delay_us += some_time_us(cluster, rng) // 4
    return planned
