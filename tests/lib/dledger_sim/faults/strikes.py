"""Strikes that set up one specific situation, and the conditions that they need.

Random faults hardly ever produce these situations. Each strike runs without other faults. A
separate random stream picks the seeds (`seeds`), so that all other seeds run as before.
"""

import random
from collections.abc import Callable
from typing import Final, TypeAlias

from dledger_sim.faults.planning import Planned, peers_of
from dledger_sim.group.cluster import SimCluster
from dledger_sim.group.conditions import RECALL_FOREVER_TICKS, TICK_US, Conditions
from dledger_sim.group.disk import Keep
from dledger_sim.group.keeper import SEGMENT_ENTRIES
from dledger_sim.group.running import NOTICE_US

Pairs: TypeAlias = list[tuple[str, str]]

DOWN_US: Final = 500
"""Downtime of a member whose disk is rolled back, or that crashes while it recalls."""


def unheard_removal(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """Lose a follower's confirmations to the target, and let the follower remove its front.

    The follower removes more entries than the target knows it to hold. Then the connection breaks,
    and the target asks about these entries.
    """
    follower, *_ = _shuffled_peers(cluster, target, rng)
    while_us = rng.randint(3, 10) * cluster.conditions.proposal_interval_us
    return [
        (1, ("heal",)),
        (1, ("cut", [(follower, target)])),
        (while_us, ("remove_front", follower, 1.0)),
        (while_us + 1, ("heal",)),
        (while_us + 2, ("reset", [(target, follower)])),
    ]


def short_absence(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """Cut a follower off for a few entries, which the target then removes from its front.

    The follower's snapshot ends just before that front, or one entry short of it. Fronts move by
    segments, so a few appends first align the end of a segment.
    """
    follower, *_ = _shuffled_peers(cluster, target, rng)
    begin_index = cluster.members[target].disk.begin_index
    newest_index = max(cluster.members[follower].disk.snapshots, default=-1)
    first_count = (begin_index - 2 - newest_index) % SEGMENT_ENTRIES
    turn_us = _turn_us(cluster)
    cut_us = 2 + bool(first_count) * (_round_us(cluster) + turn_us)
    missed_count = rng.randint(2, 4)
    removed_us = cut_us + (missed_count + 1) * turn_us
    first: Planned = [(1, ("append", target, first_count, 0))] if first_count else []
    return [
        (1, ("heal",)),
        *first,
        (cut_us, ("split", [follower])),
        *(
            (cut_us + 1 + number * turn_us, ("append", target, 1, 0))
            for number in range(missed_count)
        ),
        (removed_us, ("remove_front", target, 1.0)),
        (removed_us + 1, ("heal",)),
        (removed_us + 2, ("reset", [(target, follower)])),
    ]


def lost_vote(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """Lose a vote in transit, and roll the voter's disk back, or crash the voter without rollbacks.
    Then another candidate asks for a vote in the same term.

    Both candidates stand because of leadership transfers from the target. The first one reaches
    only the voter. The second one lacks one vote, and asks again after a connection reset.
    """
    voter, first, second, other = _shuffled_peers(cluster, target, rng)
    first_links = _both_ways([first], [target, second, other])
    voter_links = _both_ways([voter], [target, second, other])
    turn_us = _turn_us(cluster)
    asked_us = (cluster.conditions.election_ticks + 2) * TICK_US
    comes_back_us = asked_us + turn_us
    recalled_us = comes_back_us + _recall_us(cluster)
    dies = "restore_volume" if cluster.conditions.recall_ticks else "crash"
    return [
        (1, ("heal",)),
        (1, ("copy_volume", voter)),
        (1, ("cut", [pair for pair in first_links if pair != (target, first)])),
        (1, ("cut", [*voter_links, (voter, first)])),
        (2, ("transfer", target, first)),
        (2 + turn_us, ("cut", [(target, first), (first, voter)])),
        (asked_us - 1, ("cut", _both_ways([second], [other]))),
        (asked_us, ("transfer", target, second)),
        (comes_back_us, (dies, voter, DOWN_US)),
        (comes_back_us, ("heal",)),
        (comes_back_us, ("cut", first_links + _both_ways([second], [other]))),
        (recalled_us, ("reset", [(second, voter)])),
        (recalled_us + turn_us, ("heal",)),
    ]


def term_told_first(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """Roll a follower's disk back to before its confirmations to the target, while another member
    leads a newer term. The follower learns of that term, crashes before the target has sent its
    mark, and recalls again.
    """
    follower, successor, *_ = _shuffled_peers(cluster, target, rng)
    turn_us = _turn_us(cluster)
    while_us = rng.randint(2, 8) * cluster.conditions.proposal_interval_us
    comes_back_us = while_us + 3 * turn_us
    told_us = comes_back_us + _recall_us(cluster)
    return [
        (1, ("heal",)),
        (1, ("copy_volume", follower)),
        (while_us, ("split", [follower])),
        (while_us + turn_us, ("transfer", target, successor)),
        (comes_back_us, ("restore_volume", follower, DOWN_US)),
        (comes_back_us, ("heal",)),
        (comes_back_us, ("cut", _both_ways([follower], [target]))),
        (told_us, ("crash", follower, DOWN_US)),
        (told_us, ("heal",)),
    ]


def leader_goes_back(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """Let the target commit entries with one follower while the others are cut off, and roll the
    target's disk back. When all have sent their marks, cut off the follower that holds the entries.
    """
    holder, *others = _shuffled_peers(cluster, target, rng)
    while_us = rng.randint(2, 6) * cluster.conditions.proposal_interval_us
    comes_back_us = while_us + _round_us(cluster) + _turn_us(cluster)
    recalled_us = comes_back_us + _recall_us(cluster)
    return [
        (1, ("heal",)),
        (1, ("copy_volume", target)),
        (1, ("split", others)),
        (comes_back_us, ("restore_volume", target, DOWN_US)),
        (comes_back_us, ("heal",)),
        (recalled_us, ("split", [holder])),
        (recalled_us + 3 * cluster.conditions.election_ticks * TICK_US, ("heal",)),
    ]


def death_as_log_begins(cluster: SimCluster, target: str, rng: random.Random) -> Planned:
    """Let a follower's log start over, because the follower lacks the target's front. The follower
    crashes before an entry of the new log is durable, when the old log is gone.
    """
    follower, *_ = _shuffled_peers(cluster, target, rng)
    while_us = rng.randint(3, 10) * cluster.conditions.proposal_interval_us
    return [
        (1, ("heal",)),
        (2, ("split", [follower])),
        (while_us, ("remove_front", target, 1.0)),
        (while_us + 1, ("heal",)),
        (while_us + 2, ("reset", [(target, follower)])),
        (while_us + 2 + 2 * _turn_us(cluster), ("crash", follower, DOWN_US)),
    ]


def _shuffled_peers(cluster: SimCluster, target: str, rng: random.Random) -> list[str]:
    peers = peers_of(cluster, target)
    rng.shuffle(peers)
    return peers


def _both_ways(some: list[str], others: list[str]) -> Pairs:
    return [pair for one in some for other in others for pair in ((one, other), (other, one))]


def _turn_us(cluster: SimCluster) -> int:
    """Return the time for a request and its answer."""
    return NOTICE_US + 5 * cluster.conditions.delay_us


def _round_us(cluster: SimCluster) -> int:
    """Return the time after which all members know the committed index."""
    return cluster.conditions.heartbeat_ticks * TICK_US


def _recall_us(cluster: SimCluster) -> int:
    """Return the time for a restart and the answers to the requests of the first tick."""
    return DOWN_US + TICK_US + _turn_us(cluster)


STRIKES: Final[dict[str, Callable[[SimCluster, str, random.Random], Planned]]] = {
    "unheard_removal": unheard_removal,
    "short_absence": short_absence,
    "lost_vote": lost_vote,
    "term_told_first": term_told_first,
    "leader_goes_back": leader_goes_back,
    "death_as_log_begins": death_as_log_begins,
}


def drawn(rng: random.Random) -> Conditions:
    """Draw conditions for one of the strikes on a group without a state."""
    return rng.choice(WITHOUT_STATE)(rng)


def _unheard_removals(rng: random.Random) -> Conditions:
    """Draw a group with a push window so large that a follower commits entries before the leader
    knows the follower to hold them.
    """
    heartbeat_ticks = rng.choice((1, 2))
    election_ticks = heartbeat_ticks * rng.choice((6, 10))
    return Conditions(
        member_count=rng.choice((3, 3, 5)),
        heartbeat_ticks=heartbeat_ticks,
        election_ticks=election_ticks,
        push_entries_max=rng.choice((1, 8)),
        inflight_ranges_max=rng.choice((4, 16)),
        proposal_interval_us=rng.choice((3_000, 5_000)),
        proposal_entries_max=rng.choice((1, 4)),
        delay_us=rng.choice((300, 2_000)),
        in_order=rng.random() < 0.5,
        flush_us=rng.choice((100, 3_000)),
        strike_interval_us=election_ticks * TICK_US,
        leader_bias=1.0,
        faults=("unheard_removal",),
    )


def _lost_votes(rng: random.Random) -> Conditions:
    """Draw a group of five: the first candidate, the second candidate, the voter, the old leader,
    which votes for the second candidate, and one more member.
    """
    heartbeat_ticks = rng.choice((3, 4))
    election_ticks = heartbeat_ticks * 4
    return Conditions(
        member_count=5,
        heartbeat_ticks=heartbeat_ticks,
        election_ticks=election_ticks,
        recall_ticks=rng.choice((RECALL_FOREVER_TICKS, RECALL_FOREVER_TICKS, 0)),
        proposal_interval_us=rng.choice((10_000, 20_000)),
        in_order=rng.random() < 0.5,
        flush_us=100,
        strike_interval_us=2 * election_ticks * TICK_US,
        leader_bias=1.0,
        faults=("lost_vote",),
    )


def _terms_told_first(rng: random.Random) -> Conditions:
    """Draw a group whose followers soon hold more entries than a copy of their disks."""
    heartbeat_ticks = rng.choice((1, 2))
    election_ticks = heartbeat_ticks * rng.choice((6, 10))
    return Conditions(
        member_count=rng.choice((3, 3, 5)),
        heartbeat_ticks=heartbeat_ticks,
        election_ticks=election_ticks,
        recall_ticks=RECALL_FOREVER_TICKS,
        push_entries_max=rng.choice((1, 8)),
        proposal_interval_us=rng.choice((5_000, 10_000)),
        in_order=rng.random() < 0.5,
        flush_us=rng.choice((100, 3_000)),
        strike_interval_us=2 * election_ticks * TICK_US,
        leader_bias=1.0,
        faults=("term_told_first",),
    )


def _leaders_go_back(rng: random.Random) -> Conditions:
    """Draw a group of three, in which two members commit and two elect a leader."""
    heartbeat_ticks = rng.choice((1, 2))
    election_ticks = heartbeat_ticks * rng.choice((6, 10))
    return Conditions(
        heartbeat_ticks=heartbeat_ticks,
        election_ticks=election_ticks,
        recall_ticks=RECALL_FOREVER_TICKS,
        proposal_interval_us=rng.choice((10_000, 20_000)),
        in_order=rng.random() < 0.5,
        flush_us=100,
        strike_interval_us=4 * election_ticks * TICK_US,
        leader_bias=1.0,
        faults=("leader_goes_back",),
    )


def _deaths_as_logs_begin(rng: random.Random) -> Conditions:
    """Draw a group whose flushes take longer than the follower runs after its log starts over."""
    heartbeat_ticks = rng.choice((1, 2))
    election_ticks = heartbeat_ticks * rng.choice((6, 10))
    return Conditions(
        member_count=rng.choice((3, 3, 5)),
        heartbeat_ticks=heartbeat_ticks,
        election_ticks=election_ticks,
        recall_ticks=RECALL_FOREVER_TICKS,
        push_entries_max=rng.choice((1, 8)),
        proposal_interval_us=rng.choice((10_000, 20_000)),
        in_order=rng.random() < 0.5,
        flush_us=20_000,
        keep=Keep.NOTHING,
        strike_interval_us=2 * election_ticks * TICK_US,
        leader_bias=1.0,
        faults=("death_as_log_begins",),
    )


WITHOUT_STATE: Final = (
    _unheard_removals, _lost_votes, _terms_told_first, _leaders_go_back, _deaths_as_logs_begin
)  # fmt: skip


def drawn_with_state(rng: random.Random) -> Conditions:
    """Draw conditions for the strike on members with a state.

    Clients are slow, so that they append little in between. Leaders change, because a leader that
    has sent a snapshot keeps it, and the entries after it, beyond the end of such a run.
    """
    heartbeat_ticks = rng.choice((1, 2))
    return Conditions(
        member_count=3,
        heartbeat_ticks=heartbeat_ticks,
        election_ticks=heartbeat_ticks * rng.choice((6, 10)),
        proposal_interval_us=rng.choice((20_000, 40_000)),
        proposal_entries_max=1,
        reads=0.0,
        transfers=0.1,
        in_order=rng.random() < 0.5,
        flush_us=100,
        snapshot_entries=1,
        chunk_bytes=rng.choice((8, 64)),
        state_us=200,
        strike_interval_us=rng.choice((60_000, 100_000)),
        leader_bias=1.0,
        faults=("short_absence",),
    )
