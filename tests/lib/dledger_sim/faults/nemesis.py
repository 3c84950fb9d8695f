"""The nemesis: what goes wrong besides single messages and flushes, when, and to whom.

It draws acts; `simulation` performs them, now or after a delay.
"""

import random
from collections.abc import Callable
from typing import Final

from dledger_sim.faults import strikes
from dledger_sim.faults.reshaping import likely_kinds
from dledger_sim.faults.rot_lives import rot_behind, rot_entry
from dledger_sim.faults.strikes import Planned
from dledger_sim.group.cluster import SimCluster
from dledger_sim.group.conditions import TICK_US
from dledger_sim.group.moments import Moment
from dledger_sim.group.running import NOTICE_US

HEAL_RATE: Final = 0.25
AMBUSH_CHANCES_MAX: Final = 20
"""At moments that come with every batch, an ambush is that much rarer."""
COMMON_MOMENTS: Final = (Moment.APPEND_SENT, Moment.FLUSH_BEGUN, Moment.TRUNCATED)


class Nemesis:
    """Strikes a group as its conditions allow."""

    def __init__(self, cluster: SimCluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        conditions = cluster.conditions
        self._strikes = [fault for fault in conditions.faults if fault not in AMBUSHES_ONLY]
        self._ambushes = {
            moment: [
                fault for fault in AMBUSHES.get(moment, AIMED_FAULTS) if fault in conditions.faults
            ]
            for moment in Moment
        }
        common = conditions.ambush / AMBUSH_CHANCES_MAX
        self._ambush_rates = {
            moment: common if moment in COMMON_MOMENTS else conditions.ambush
            for moment in Moment
            if self._ambushes[moment] and moment.value in conditions.moments
        }

    def strike(self) -> Planned:
        """Draw one of the allowed faults for some member, or let the network heal."""
        faults = self._strikes
        if not faults or self._rng.random() < HEAL_RATE:
            return [(1, ("heal",))]
        return FAULTS[self._rng.choice(faults)](self._cluster, self._target(), self._rng)

    def at(self, moment: Moment, member_id: str) -> Planned:
        """Perhaps strike a member at a bad moment, or within the next few round trips.

        The rarest bugs of Raft need several short reigns in a row (paper, figure 8).
        """
        rate = self._ambush_rates.get(moment, 0.0)
        cluster, rng = self._cluster, self._rng
        if not rate or rng.random() >= rate:
            return []
        conditions = cluster.conditions
        at_once = moment is Moment.STANDS or rng.random() < 0.3
        reach_us = 1 if at_once else 4 * conditions.delay_us + conditions.flush_us
        delay_us = 1 + int(rng.random() * reach_us)
        planned = FAULTS[rng.choice(self._ambushes[moment])](cluster, member_id, rng)
        return [(delay_us + after_us, act) for after_us, act in planned]

    def _target(self) -> str:
        cluster = self._cluster
        leaders = [member.member_id for member in cluster.members.values() if member.leads]
        if leaders and self._rng.random() < cluster.conditions.leader_bias:
            return self._rng.choice(leaders)
        return self._rng.choice(cluster.conditions.member_ids)


def _reshape(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """Ask a leader for changes, one soon after another, as soon as it is elected or changes."""
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


def _crash(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    return [(1, ("crash", target, _some_time_us(cluster, rng)))]


def _lose_volume(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """Empty a disk, or damage it; or that of a member which has just elected another leader than
    the target, and leave it to the target, who does not know that yet.
    """
    kept_rate = rng.choice((None, None, rng.random(), 1.0))
    if rng.random() < 0.5:
        return [(1, ("lose_volume", target, _some_time_us(cluster, rng), kept_rate))]
    peers = _peers(cluster, target)
    victim = rng.choice(peers) if peers else target
    return _strike_behind(cluster, target, victim, rng, "lose_volume", kept_rate)


def _strike_behind(
    cluster: SimCluster, target: str, victim: str, rng: random.Random, act: str, *details: object
) -> Planned:
    """Strike a member's volume while the target is cut off; then it sees the target alone."""
    peers = _peers(cluster, target)
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
        (elected_us + 2 + _some_time_us(cluster, rng), ("heal",)),
    ]


def _older_disk(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """Bring a disk back as it is now: the target's, or that of a member which has elected another
    leader meanwhile, and leave it to the target.
    """
    act = "restore_log" if rng.random() < 0.2 else "restore_volume"
    peers = _peers(cluster, target)
    victim = rng.choice((target, *peers))
    planned = [(1, ("copy_volume", victim))]
    if victim == target or rng.random() < 0.3:
        later_us = 2 + _some_time_us(cluster, rng)
        return [*planned, (later_us, (act, victim, 1 + rng.randrange(TICK_US)))]
    return [*planned, *_strike_behind(cluster, target, victim, rng, act)]


def _remove_front(_: SimCluster, target: str, rng: random.Random) -> Planned:
    return [(1, ("remove_front", target, max(rng.random(), rng.random())))]


def _rot_snapshot(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    if rng.random() < 0.5:
        return [(1, ("rot_snapshot", target))]
    return [(1, ("rot_snapshot", target, _some_time_us(cluster, rng)))]


def _leave_behind(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """Cut a member off until the others have removed what it lacks; or let it remove all that it
    can, while what it has just confirmed is lost on its way.
    """
    peers = _peers(cluster, target)
    if rng.random() < 0.3:
        pairs = [(target, peer_id) for peer_id in peers]
        return [(1, ("reset", pairs)), (2, ("remove_front", target, 1.0))]
    later_us = 3 + _some_time_us(cluster, rng)
    return [
        (1, ("heal",)),
        (2, ("split", [target])),
        *((later_us, ("remove_front", peer_id, 1.0)) for peer_id in peers),
        (later_us + 1, ("heal",)),
    ]


def _power_cut(cluster: SimCluster, _: str, rng: random.Random) -> Planned:
    members = cluster.conditions.member_ids
    downs_us = [(member_id, _some_time_us(cluster, rng) // 4) for member_id in members]
    return [(1, ("power_cut", downs_us))]


def _isolate(_: SimCluster, target: str, __: random.Random) -> Planned:
    return [(1, ("heal",)), (2, ("split", [target]))]


def _disconnect(cluster: SimCluster, target: str, _: random.Random) -> Planned:
    """The others learn of it at once and elect another; the target hears of nobody."""
    pairs = [(target, peer_id) for peer_id in _peers(cluster, target)]
    return [(1, ("heal",)), (2, ("disconnect", pairs))]


def _late_answers(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """The target's last heartbeat round is answered late; meanwhile it is cut off, so that it
    believes in its leadership when the others have long given it up.
    """
    conditions, peers = cluster.conditions, _peers(cluster, target)
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


def _late_term(cluster: SimCluster, target: str, _: random.Random) -> Planned:
    """A witness learns, from an answer that is late, of the term in which a candidate asks for its
    vote; between its question and that answer it has heard the target, who leads on.

    For that, the target's last round is answered late, and all others miss the target before it
    misses them. A connection is reset where somebody shall ask again.
    """
    conditions, peers = cluster.conditions, _peers(cluster, target)
    candidate, witness = peers[:2]  # of two with equal logs, the first by id goes first
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


def _hide(cluster: SimCluster, target: str, _: random.Random) -> Planned:
    """Whoever else takes itself for the leader shall not hear of the target."""
    pairs: list[tuple[str, str]] = []
    for member in cluster.members.values():
        if member.leads and member.member_id != target:
            for peer_id in _peers(cluster, member.member_id):
                pairs += [(member.member_id, peer_id), (peer_id, member.member_id)]
    return [(1, ("cut", pairs))]


def _hold_up(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """What a candidate asks comes late, when a leader is heard again; and never to that leader."""
    held_us = rng.randint(1, cluster.conditions.election_ticks // 2) * TICK_US
    leaders = [member.member_id for member in cluster.members.values() if member.leads]
    peers = _peers(cluster, target)
    return [
        (1, ("heal",)),
        (2, ("clog", [(target, peer) for peer in peers if peer not in leaders], held_us)),
        (2, ("cut", [(target, peer) for peer in peers if peer in leaders])),
    ]


def _split(cluster: SimCluster, _: str, rng: random.Random) -> Planned:
    members = cluster.conditions.member_ids
    return [(1, ("split", [member_id for member_id in members if rng.random() < 0.5]))]


def _cut_one_way(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    heard = rng.random() < 0.5
    peers = [peer_id for peer_id in _peers(cluster, target) if rng.random() < 0.7]
    return [(1, ("cut", [(peer, target) if heard else (target, peer) for peer in peers]))]


def _bridge(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """Two halves that see each other only through the target."""
    peers = _peers(cluster, target)
    rng.shuffle(peers)
    one, other = peers[: len(peers) // 2], peers[len(peers) // 2 :]
    pairs = [pair for a in one for b in other for pair in ((a, b), (b, a))]
    return [(1, ("cut", pairs))]


def _reset_link(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    peers = [peer_id for peer_id in _peers(cluster, target) if rng.random() < 0.5]
    return [(1, ("reset", [(target, peer_id) for peer_id in peers]))]


def _clog(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    pairs = [
        pair
        for peer_id in _peers(cluster, target)
        for pair in ((peer_id, target), (target, peer_id))
        if rng.random() < 0.7
    ]
    return [(1, ("clog", pairs, _some_time_us(cluster, rng)))]


def _swizzle_clog(cluster: SimCluster, _: str, rng: random.Random) -> Planned:
    """Clog some members one after another; each comes back in its own time."""
    planned: Planned = []
    delay_us = 1
    for member_id in cluster.conditions.member_ids:
        if rng.random() < 0.6:
            pairs = [(peer_id, member_id) for peer_id in _peers(cluster, member_id)]
            planned.append((delay_us, ("clog", pairs, _some_time_us(cluster, rng))))
            delay_us += _some_time_us(cluster, rng) // 4
    return planned


def _pause(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    return [(1, ("pause", target, _some_time_us(cluster, rng)))]


def _fill_disk(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    return [(1, ("fill_disk", target, _some_time_us(cluster, rng)))]


def _peers(cluster: SimCluster, target: str) -> list[str]:
    return [peer_id for peer_id in cluster.conditions.member_ids if peer_id != target]


def _some_time_us(cluster: SimCluster, rng: random.Random) -> int:
    """From nothing to two election timeouts."""
    return rng.randint(1, 4 * cluster.conditions.election_ticks) * TICK_US


FAULTS: Final[dict[str, Callable[[SimCluster, str, random.Random], Planned]]] = {
    "reshape": _reshape,
    "crash": _crash,
    "lose_volume": _lose_volume,
    "remove_front": _remove_front,
    "power_cut": _power_cut,
    "isolate": _isolate,
    "disconnect": _disconnect,
    "late_answers": _late_answers,
    "hide": _hide,
    "hold_up": _hold_up,
    "split": _split,
    "cut_one_way": _cut_one_way,
    "bridge": _bridge,
    "reset_link": _reset_link,
    "clog": _clog,
    "swizzle_clog": _swizzle_clog,
    "pause": _pause,
    "fill_disk": _fill_disk,
    "older_disk": _older_disk,
    "late_term": _late_term,
    "rot_snapshot": _rot_snapshot,
    "leave_behind": _leave_behind,
    "rot_entry": rot_entry,
    "rot_behind": rot_behind,
    **strikes.STRIKES,
}
ANYWHERE: Final = tuple(FAULTS)[: list(FAULTS).index("older_disk")]
"""Those that need no conditions of their own."""
AIMED_FAULTS: Final = (
    "crash", "lose_volume", "older_disk", "isolate", "disconnect", "cut_one_way", "reset_link",
    "clog", "pause",
)  # fmt: skip
AMBUSHES: Final = {
    Moment.ELECTED: (*AIMED_FAULTS, "hide", "reshape", "rot_entry"),
    Moment.CHANGES: (*AIMED_FAULTS, "reshape"),
    Moment.STANDS: ("hold_up",),
    Moment.FETCHES: (*AIMED_FAULTS, "remove_front", "rot_snapshot"),
    Moment.HANDS_OVER: ("isolate", "disconnect", "crash", "late_answers"),
}
"""What a strike may be at a moment: these, or otherwise any that is aimed."""
AMBUSHES_ONLY: Final = ("hide", "hold_up", "reshape")
"""What makes sense at its moment alone."""
