"""The nemesis: what goes wrong besides single messages and flushes, when, and to whom."""

import random
from collections.abc import Callable
from functools import partial
from typing import Final

from dledger_sim.cluster import SimCluster
from dledger_sim.conditions import TICK_US


class Nemesis:
    """Strikes a group as its conditions allow."""

    def __init__(self, cluster: SimCluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._leader_count = 0
        self._stopped = False

    def stop(self) -> None:
        """Strike no more, whatever is planned."""
        self._stopped = True

    def strike(self) -> None:
        """Do one of the allowed faults to some member, or heal the network."""
        faults = self._cluster.conditions.faults
        if not faults or self._rng.random() < 0.25:
            self._cluster.heal_network()
        else:
            FAULTS[self._rng.choice(faults)](self._cluster, self._target(), self._rng)

    def watch(self) -> None:
        """Perhaps strike a leader that is new since the last call, while its first entries travel.

        The rarest bugs of Raft need several short reigns in a row (paper, figure 8).
        """
        cluster, rng = self._cluster, self._rng
        leader_id = cluster.checker.newest_leader_id
        known, self._leader_count = self._leader_count, cluster.checker.leader_count
        faults = [fault for fault in cluster.conditions.faults if fault in AIMED_FAULTS]
        if known != self._leader_count and faults and rng.random() < cluster.conditions.ambush:
            delay_us = rng.randint(0, 4 * cluster.conditions.delay_us + cluster.conditions.flush_us)
            cluster.after(delay_us, partial(self._ambush, rng.choice(faults), leader_id))

    def _ambush(self, fault: str, leader_id: str) -> None:
        if not self._stopped:
            FAULTS[fault](self._cluster, leader_id, self._rng)

    def _target(self) -> str:
        cluster = self._cluster
        leaders = [member.member_id for member in cluster.members.values() if member.leads]
        if leaders and self._rng.random() < cluster.conditions.leader_bias:
            return self._rng.choice(leaders)
        return self._rng.choice(cluster.conditions.member_ids)


def _crash(cluster: SimCluster, target: str, rng: random.Random) -> None:
    cluster.crash(target, down_us=_some_time_us(cluster, rng))


def _power_cut(cluster: SimCluster, _: str, rng: random.Random) -> None:
    for member_id in cluster.conditions.member_ids:
        cluster.crash(member_id, down_us=_some_time_us(cluster, rng) // 4)


def _isolate(cluster: SimCluster, target: str, _: random.Random) -> None:
    cluster.heal_network()
    cluster.split({target})


def _split(cluster: SimCluster, _: str, rng: random.Random) -> None:
    members = cluster.conditions.member_ids
    cluster.split({member_id for member_id in members if rng.random() < 0.5})


def _cut_one_way(cluster: SimCluster, target: str, rng: random.Random) -> None:
    heard = rng.random() < 0.5
    for peer_id in cluster.conditions.member_ids:
        if peer_id != target and rng.random() < 0.7:
            cluster.cut(*((peer_id, target) if heard else (target, peer_id)))


def _reset_link(cluster: SimCluster, target: str, rng: random.Random) -> None:
    for peer_id in cluster.conditions.member_ids:
        if peer_id != target and rng.random() < 0.5:
            cluster.reset_link(target, peer_id)


def _pause(cluster: SimCluster, target: str, rng: random.Random) -> None:
    cluster.pause(target, _some_time_us(cluster, rng))


def _some_time_us(cluster: SimCluster, rng: random.Random) -> int:
    """From nothing to two election timeouts."""
    return rng.randint(1, 4 * cluster.conditions.election_ticks) * TICK_US


FAULTS: Final[dict[str, Callable[[SimCluster, str, random.Random], None]]] = {
    "crash": _crash,
    "power_cut": _power_cut,
    "isolate": _isolate,
    "split": _split,
    "cut_one_way": _cut_one_way,
    "reset_link": _reset_link,
    "pause": _pause,
}
AIMED_FAULTS: Final = ("crash", "isolate", "cut_one_way", "pause")
