"""The time that a group is without a master, in calm conditions."""

import random
import statistics

import pytest

from dledger_node.raft.member_state import Role
from dledger_sim.group.cluster import SimCluster
from dledger_sim.group.conditions import TICK_US, Conditions

# The node's defaults: 250 ms and 1 s.
DEFAULTS = Conditions(heartbeat_ticks=25, election_ticks=100, proposal_interval_us=20_000)
HEARTBEAT_US = DEFAULTS.heartbeat_ticks * TICK_US
ELECTION_US = DEFAULTS.election_ticks * TICK_US
SEED_COUNT = 60


def settled_cluster(seed: int, conditions: Conditions = DEFAULTS) -> SimCluster:
    """Return a group with a master whose followers hold its whole log."""
    cluster = SimCluster(conditions, random.Random(seed))
    cluster.run_until(cluster.agreed, 10 * ELECTION_US)
    return cluster


def leader_id(cluster: SimCluster) -> str:
    leader = cluster.leader()
    assert leader is not None
    return leader.member_id


def run_for(cluster: SimCluster, duration_us: int) -> None:
    end_us = cluster.now_us + duration_us
    cluster.run_until(lambda: cluster.now_us >= end_us, duration_us + ELECTION_US)


def failover_us(seed: int) -> int:
    """Return the time from the leader's crash to a master with a committed entry of its own."""
    cluster = settled_cluster(seed)
    run_for(cluster, seed * 7_919 % HEARTBEAT_US)
    old_leader_id, killed_us = leader_id(cluster), cluster.now_us
    cluster.crash(old_leader_id, down_us=100 * ELECTION_US)
    cluster.run_until(lambda: cluster.leader() is not None, 10 * ELECTION_US)
    return cluster.now_us - killed_us


def test_a_killed_leader_is_replaced_within_two_heartbeats_and_split_votes_are_rare() -> None:
    durations_us = sorted(failover_us(seed) for seed in range(SEED_COUNT))

    assert statistics.median(durations_us) < 2 * HEARTBEAT_US
    assert durations_us[int(0.85 * SEED_COUNT)] < 2 * HEARTBEAT_US + 2 * TICK_US
    assert durations_us[-1] < 2 * HEARTBEAT_US + 2 * 2 * ELECTION_US


def test_a_leader_that_is_cut_off_is_replaced_after_an_election_timeout() -> None:
    cluster = settled_cluster(1)
    old_leader_id, cut_us = leader_id(cluster), cluster.now_us
    cluster.split({old_leader_id})
    cluster.run_until(lambda: cluster.leader() is not None and leader_id(cluster) != old_leader_id,
                      4 * ELECTION_US)  # fmt: skip

    assert cluster.now_us - cut_us > ELECTION_US // 2


def test_a_leader_that_is_cut_off_steps_down_before_twice_its_timeout() -> None:
    cluster = settled_cluster(2)
    old_leader = cluster.members[leader_id(cluster)]
    cluster.split({old_leader.member_id})

    cluster.run_until(lambda: not old_leader.leads, ELECTION_US + 2 * TICK_US)


@pytest.mark.parametrize("seed", range(5))
def test_connection_resets_depose_no_leader(seed: int) -> None:
    cluster = settled_cluster(seed)
    leader = cluster.members[leader_id(cluster)]
    assert leader.raft is not None
    term = leader.raft.term
    rng = random.Random(seed)
    for _ in range(100):
        cluster.reset_link(leader.member_id, rng.choice(leader.raft.config.peers))
        run_for(cluster, rng.randint(0, 2 * HEARTBEAT_US))

    assert (leader.raft.role, leader.raft.term) == (Role.LEADER, term)


def test_a_group_that_restarts_completely_keeps_all_acknowledged_entries() -> None:
    cluster = settled_cluster(3)
    for _ in range(20):
        cluster.propose(leader_id(cluster), 3)
    cluster.run_until(cluster.agreed, ELECTION_US)
    committed = list(cluster.checker.committed)
    for member_id in DEFAULTS.member_ids:
        cluster.crash(member_id, down_us=HEARTBEAT_US)
    cluster.run_until(cluster.agreed, 10 * ELECTION_US)

    assert cluster.checker.acknowledged_count == 60
    assert cluster.checker.committed[: len(committed)] == committed


def test_a_leader_whose_turns_are_long_stays_the_leader() -> None:
    """A loop that is busy loses most of its ticks, but its heartbeats go by the time."""
    cluster = settled_cluster(4)
    leader = cluster.members[leader_id(cluster)]
    assert leader.raft is not None
    term = leader.raft.term
    for _ in range(40):
        cluster.pause(leader.member_id, HEARTBEAT_US)
        run_for(cluster, HEARTBEAT_US + TICK_US)

    assert (leader.raft.role, leader.raft.term) == (Role.LEADER, term)
