"""Acts: requests of clients and faults, each of which is one line of a tape.

An act is a name with JSON-compatible arguments, so that a tape can store and repeat it.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from dledger_node.raft.membership import Membership
from dledger_sim.broker.administrators import DELETABLE
from dledger_sim.broker.clients import BrokerClients
from dledger_sim.broker.cluster import BrokerCluster
from dledger_sim.faults.reshaping import may_lose_volume
from dledger_sim.group.cluster import SimCluster
from dledger_sim.group.loaded import LoadedCluster
from dledger_sim.judges.broker_log import Place

Act: TypeAlias = tuple[Any, ...]
"""A key of ACTS and its arguments."""

Pairs: TypeAlias = list[tuple[str, str]]
"""Links as pairs of sender and receiver."""


def _append(cluster: SimCluster, member_id: str, count: int, client: int) -> None:
    cluster.propose(member_id, count, client)


def _read(cluster: SimCluster, member_id: str, index: int, client: int) -> None:
    cluster.read(member_id, index, client)


def _read_index(cluster: SimCluster, member_id: str, client: int) -> None:
    cluster.read_index(member_id, client)


def _transfer(cluster: SimCluster, member_id: str, transferee_id: str) -> None:
    cluster.transfer(member_id, transferee_id)


def _change(cluster: SimCluster, member_id: str, kind: str, target: str) -> None:
    cluster.change(member_id, kind, target)


def _crash(cluster: SimCluster, member_id: str, down_us: int) -> None:
    cluster.crash(member_id, down_us=down_us)


def _lose_volume(
    cluster: SimCluster, member_id: str, down_us: int, kept_rate: float | None = None
) -> None:
    cluster.lose_volume(member_id, kept_rate, down_us=down_us)


def _copy_volume(cluster: SimCluster, member_id: str) -> None:
    cluster.older_disks.copy(member_id)


def _restore_volume(cluster: SimCluster, member_id: str, down_us: int) -> None:
    _bring_back(cluster, member_id, down_us, log_alone=False)


def _restore_log(cluster: SimCluster, member_id: str, down_us: int) -> None:
    _bring_back(cluster, member_id, down_us, log_alone=True)


def _bring_back(cluster: SimCluster, member_id: str, down_us: int, *, log_alone: bool) -> None:
    """Crash a member and roll its disk back to the copy, if others know what the copy lacks."""
    if cluster.older_disks.may_come_back(member_id, log_alone=log_alone):
        cluster.crash(member_id, down_us=down_us, told="crashes, and its disk is rolled back")
        cluster.older_disks.bring_back(member_id, log_alone=log_alone)
        cluster.network.drop_what_travels(member_id)


def _lose_power(cluster: SimCluster, member_ids: list[str], down_us: int) -> None:
    """Let hosts lose power and what is not flushed there, if other members know what that is."""
    if cluster.older_disks.may_lose_power(member_ids):
        for member_id in member_ids:
            cluster.crash(member_id, down_us=down_us, told="loses power")
        for member_id in member_ids:
            cluster.older_disks.lose_power(member_id)
            cluster.network.drop_what_travels(member_id)


def _rot_snapshot(cluster: SimCluster, member_id: str, down_us: int | None = None) -> None:
    """Damage a member's newest snapshot while the member runs, or as it crashes.

    An administrator empties the disk of a member that needs this snapshot, so this does nothing if
    the group cannot lose that disk.
    """
    first, disk = Membership(cluster.conditions.voter_ids), cluster.members[member_id].disk
    if disk.snapshots and may_lose_volume(cluster.members, first, member_id):
        if down_us is not None:
            cluster.crash(member_id, down_us=down_us, told="crashes, and its newest snapshot rots")
        cluster.fault_count += 1
        disk.rot_newest_snapshot()


def _rot_entry(
    cluster: SimCluster, member_id: str, index: int, count: int, down_us: int | None = None
) -> None:
    """Let durable entries rot while the member runs, or as it crashes, if its disk may be lost.

    The rot shows only when the member reads the entries.
    """
    if cluster.rotting.may_rot(member_id):
        if down_us is not None:
            cluster.crash(member_id, down_us=down_us, told="crashes, and entries of its log rot")
        cluster.fault_count += 1
        cluster.rotting.rot(member_id, index, count)


def _remove_front(cluster: SimCluster, member_id: str, rate: float) -> None:
    cluster.remove_front(member_id, rate)


def _power_cut(cluster: SimCluster, downs_us: list[tuple[str, int]]) -> None:
    for member_id, down_us in downs_us:
        cluster.crash(member_id, down_us=down_us)


def _split(cluster: SimCluster, side: list[str]) -> None:
    cluster.split(set(side))


def _cut(cluster: SimCluster, pairs: Pairs) -> None:
    for sender, receiver in pairs:
        cluster.cut(sender, receiver)


def _disconnect(cluster: SimCluster, pairs: Pairs) -> None:
    for one, other in pairs:
        cluster.disconnect(one, other)


def _clog(cluster: SimCluster, pairs: Pairs, duration_us: int) -> None:
    for sender, receiver in pairs:
        cluster.clog(sender, receiver, duration_us)


def _reset(cluster: SimCluster, pairs: Pairs) -> None:
    for one, other in pairs:
        cluster.reset_link(one, other)


def _heal(cluster: SimCluster) -> None:
    cluster.heal_network()


def _pause(cluster: SimCluster, member_id: str, duration_us: int) -> None:
    cluster.pause(member_id, duration_us)


def _flood(
    cluster: SimCluster, kind: str, member_id: str, connections: int, duration_us: int
) -> None:
    assert isinstance(cluster, LoadedCluster)
    cluster.flood(kind, member_id, connections, duration_us)


def _send(
    cluster: SimCluster, member_id: str, client: int, topic: str, queue_id: int, level: int,
    count: int,
) -> None:  # fmt: skip
    _broker(cluster).send(member_id, client, Place(topic, queue_id), level, count)


def _pull(
    cluster: SimCluster, member_id: str, client: int, topic: str, queue_id: int, suspends: int
) -> None:
    place = Place(topic, queue_id)
    _broker(cluster).pull(member_id, client, place, suspends=bool(suspends))


def _commit(cluster: SimCluster, member_id: str, client: int, topic: str, queue_id: int) -> None:
    _broker(cluster).commit(member_id, client, Place(topic, queue_id))


def _query(cluster: SimCluster, member_id: str, client: int, topic: str, queue_id: int) -> None:
    _broker(cluster).query(member_id, client, Place(topic, queue_id))


def _beat(cluster: SimCluster, member_id: str, client: int) -> None:
    _broker(cluster).ordered.beat(member_id, client)


def _lock(cluster: SimCluster, member_id: str, client: int) -> None:
    _broker(cluster).ordered.lock(member_id, client)


def _unlock(cluster: SimCluster, member_id: str, client: int) -> None:
    _broker(cluster).ordered.unlock(member_id, client)


def _give_back(cluster: SimCluster, member_id: str, client: int, level: int) -> None:
    _broker(cluster).returners.give_back(member_id, client, level)


def _set_topic(cluster: SimCluster, member_id: str) -> None:
    _broker(cluster).administrators.set_topic(member_id)


def _delete_topic(cluster: SimCluster, member_id: str) -> None:
    """Delete the topic; a message and a commit for it come while that is on its way."""
    clients, place = _broker(cluster), Place(DELETABLE, 0)
    clients.administrators.delete_topic(member_id)
    clients.send(member_id, 0, place, 0, 1)
    clients.commit(member_id, 0, place)


def _set_group(cluster: SimCluster, member_id: str, group: str) -> None:
    _broker(cluster).administrators.set_group(member_id, group)


def _delete_group(cluster: SimCluster, member_id: str, group: str) -> None:
    _broker(cluster).administrators.delete_group(member_id, group)


def _broker(cluster: SimCluster) -> BrokerClients:
    assert isinstance(cluster, BrokerCluster)
    return cluster.broker_clients


def _fill_disk(cluster: SimCluster, member_id: str, duration_us: int) -> None:
    cluster.fill_disk(member_id, duration_us)


ACTS: Final[dict[str, Callable[..., None]]] = {
    "append": _append,
    "read": _read,
    "read_index": _read_index,
    "transfer": _transfer,
    "change": _change,
    "crash": _crash,
    "lose_volume": _lose_volume,
    "copy_volume": _copy_volume,
    "restore_volume": _restore_volume,
    "restore_log": _restore_log,
    "lose_power": _lose_power,
    "rot_snapshot": _rot_snapshot,
    "rot_entry": _rot_entry,
    "remove_front": _remove_front,
    "power_cut": _power_cut,
    "split": _split,
    "cut": _cut,
    "disconnect": _disconnect,
    "clog": _clog,
    "reset": _reset,
    "heal": _heal,
    "pause": _pause,
    "fill_disk": _fill_disk,
    "flood": _flood,
    "send": _send,
    "pull": _pull,
    "commit": _commit,
    "query": _query,
    "beat": _beat,
    "lock": _lock,
    "unlock": _unlock,
    "give_back": _give_back,
    "set_topic": _set_topic,
    "delete_topic": _delete_topic,
    "set_group": _set_group,
    "delete_group": _delete_group,
}


def perform(cluster: SimCluster, act: Act) -> None:
    """Perform an act now."""
    ACTS[act[0]](cluster, *act[1:])
