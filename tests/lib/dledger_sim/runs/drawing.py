"""How a seed draws the conditions of its group.

Each seed draws only a few faults and rates ("swarm testing"): a group with every fault at once
makes no progress worth checking. The order of the draws is fixed: reordering them changes the run
of every seed.
"""

import dataclasses
import random

from dledger_node.config import NOTICES_PER_TICK_MAX
from dledger_sim.group.conditions import (
    CLOCK_DRIFT_MAX,
    RECALL_FOREVER_TICKS,
    TICK_US,
    Conditions,
)
from dledger_sim.group.disk import Keep
from dledger_sim.group.moments import Moment

SHORT_REIGNS_RATE = 0.15
LATE_READS_RATE = 0.2
LATE_TERMS_RATE = 0.03
"""Share of all seeds; a part of LATE_READS_RATE."""
LOST_VOLUMES_RATE = 0.15
CHANGES_RATE = 0.15
OLDER_DISKS_RATE = 0.05
VOLUME_FAULTS = ("remove_front", "crash", "isolate", "reset_link", "cut_one_way", "pause", "clog")
ANY_MOMENT = tuple(moment for moment in Moment if moment is not Moment.FETCHES)
"""Moments that any group has. `FETCHES` needs a state."""
OLDER_DISKS_FAULTS = ("crash", "isolate", "reset_link", "cut_one_way", "pause", "clog")
LATE_READS_FAULTS = (
    ("late_answers",),
    ("late_answers", "hold_up", "hide"),
    ("late_answers", "hold_up", "hide"),
    ("disconnect", "hide"),
    ("isolate", "cut_one_way", "crash", "clog"),
)
FOLLOWER_READS_FAULTS = (
    ("split",),
    ("split",),
    ("split", "crash"),
    ("isolate", "cut_one_way", "clog"),
    ("crash", "reset_link", "pause"),
)


def drawn(rng: random.Random, faults: tuple[str, ...]) -> Conditions:
    """Draw conditions of a group without a state; `faults` are the allowed faults."""
    kind = rng.random()
    if kind < SHORT_REIGNS_RATE:
        conditions = _short_reigns(rng)
    elif kind < SHORT_REIGNS_RATE + LATE_TERMS_RATE:
        conditions = _late_terms(rng)
    elif kind < SHORT_REIGNS_RATE + LATE_READS_RATE:
        conditions = _late_reads(rng)
    elif kind < SHORT_REIGNS_RATE + LATE_READS_RATE + LOST_VOLUMES_RATE:
        conditions = _lost_volumes(rng)
    elif kind > 1.0 - CHANGES_RATE:
        conditions = _changes(rng, faults)
    elif kind > 1.0 - CHANGES_RATE - OLDER_DISKS_RATE:
        return _older_disks(rng)
    else:
        conditions = _all_sorts(rng, faults)
    recalls = int(kind * 1_000_000) % 2
    return dataclasses.replace(conditions, recall_ticks=recalls * conditions.election_ticks)


def _all_sorts(rng: random.Random, faults: tuple[str, ...]) -> Conditions:
    """Draw conditions with any faults and rates."""
    heartbeat_ticks = rng.choice((1, 2, 3))
    election_ticks = heartbeat_ticks * rng.choice((3, 4, 6))
    return Conditions(
        member_count=rng.choice((1, 2, 3, 3, 3, 3, 3, 4, 5, 5, 5, 6, 7)),
        heartbeat_ticks=heartbeat_ticks,
        election_ticks=election_ticks,
        push_entries_max=rng.choice((1, 2, 8, 64)),
        inflight_ranges_max=rng.choice((1, 2, 4, 16)),
        clock_drift=rng.choice((0, 0, 20, CLOCK_DRIFT_MAX)),
        preferred_count=rng.choice((0, 0, 0, 1, 2)),
        client_count=rng.choice((1, 3, 5)),
        proposal_interval_us=rng.choice((2_000, 5_000, 20_000)),
        proposal_entries_max=rng.choice((1, 1, 4, 10)),
        reads=rng.choice((0.0, 0.2, 0.5)),
        transfers=rng.choice((0.0, 0.0, 0.02, 0.2)),
        loss=rng.choice((0.0, 0.0, 0.02, 0.1, 0.3)),
        duplicate=rng.choice((0.0, 0.0, 0.05, 0.2)),
        delay_us=rng.choice((200, 2_000, 10_000, 30_000)),
        in_order=rng.random() < 0.4,
        split_push=rng.choice((0.0, 0.3)),
        notice_link=rng.choice((0.0, 0.5, 1.0)),
        real_bytes=rng.random() < 0.1,
        flush_us=rng.choice((100, 3_000, 20_000, 100_000)),
        slow_hard_state=rng.choice((0.0, 0.0, 0.3)),
        checkpoint=rng.choice((0.0, 0.1)),
        keep=rng.choice(tuple(Keep)),
        crash_in_ready=rng.choice((0.0, 0.0, 0.002, 0.01)),
        flush_failure=rng.choice((0.0, 0.0, 0.01, 0.05)),
        strike_interval_us=int(rng.choice((0, 0.3, 0.7, 1, 3)) * election_ticks * TICK_US),
        leader_bias=rng.choice((0.0, 0.5, 0.95, 1.0)),
        ambush=rng.choice((0.0, 0.0, 0.05, 0.5, 0.9)),
        moments=tuple(moment.value for moment in ANY_MOMENT if rng.random() < 0.5),
        faults=tuple(fault for fault in faults if rng.random() < 0.4),
        notices_per_tick_max=rng.choice((0, NOTICES_PER_TICK_MAX, 8)),
    )


def _short_reigns(rng: random.Random) -> Conditions:
    """Draw conditions under which leaders fail while their first entries travel one by one.

    Without these, hardly any seed reaches the situation of figure 8 of the Raft paper, in which
    an entry of an older term is on a majority.
    """
    return Conditions(
        member_count=rng.choice((3, 5)),
        heartbeat_ticks=1,
        election_ticks=4,
        push_entries_max=1,
        inflight_ranges_max=1,
        proposal_interval_us=20_000,
        proposal_entries_max=1,
        reads=rng.choice((0.0, 0.2)),
        loss=rng.choice((0.0, 0.1)),
        delay_us=2_000,
        flush_us=100,
        keep=Keep.EVERYTHING,
        strike_interval_us=60_000,
        leader_bias=0.9,
        ambush=0.9,
        moments=(Moment.ELECTED.value,),
        faults=("crash", "isolate"),
    )


def _late_reads(rng: random.Random) -> Conditions:
    """Draw conditions under which clients read from a leader that is cut off from its group.

    Most of these groups use lease reads. A lease allows for clocks that run at 0.9 and 1.1 of true
    time, but not for a paused process, so no member is paused.
    """
    election_ticks = rng.choice((8, 12, 12, 16))
    lease_ticks = election_ticks * 3 // 4 - 1
    # Between two rare rounds, another leader may be elected.
    rare_rounds = rng.random() < 0.2
    return Conditions(
        member_count=rng.choice((3, 3, 3, 5)),
        heartbeat_ticks=election_ticks // 2 if rare_rounds else rng.choice((1, 2, 2)),
        election_ticks=election_ticks,
        clock_drift=rng.choice((0, CLOCK_DRIFT_MAX, CLOCK_DRIFT_MAX)),
        lease_ticks=0 if rare_rounds else rng.choice((0, lease_ticks, lease_ticks, lease_ticks)),
        proposal_interval_us=rng.choice((3_000, 5_000)),
        proposal_entries_max=1,
        reads=0.75,
        transfers=0.1 if rare_rounds else rng.choice((0.0, 0.02)),
        loss=rng.choice((0.0, 0.05)),
        delay_us=rng.choice((300, 2_000, 2_000, 10_000)),
        in_order=rng.random() < 0.5,
        flush_us=100,
        strike_interval_us=rng.choice((1, 2)) * election_ticks * TICK_US,
        leader_bias=1.0,
        ambush=rng.choice((0.2, 0.5, 0.9)),
        moments=(Moment.ELECTED.value, Moment.STANDS.value, Moment.HANDS_OVER.value),
        faults=("late_answers",) if rare_rounds else rng.choice(LATE_READS_FAULTS),
    )


def _late_terms(rng: random.Random) -> Conditions:
    """Draw conditions under which clients read by the leader's lease while a follower that grants
    the lease learns of a newer term. No other fault occurs: it would delay that message.
    """
    election_ticks = rng.choice((8, 12, 16))
    return dataclasses.replace(
        _late_reads(rng),
        member_count=3,
        heartbeat_ticks=1,
        election_ticks=election_ticks,
        clock_drift=rng.choice((0, CLOCK_DRIFT_MAX)),
        lease_ticks=election_ticks * 3 // 4 - 1,
        transfers=0.0,
        loss=0.0,
        delay_us=300,
        strike_interval_us=3 * election_ticks * TICK_US,
        ambush=0.0,
        faults=("late_term",),
    )


def follower_reads(rng: random.Random) -> Conditions:
    """Draw conditions under which clients read from followers of a leader that was deposed.

    Such a follower is on the leader's side of a cut, so most of these groups have five members.
    """
    heartbeat_ticks = rng.choice((1, 2))
    election_ticks = heartbeat_ticks * rng.choice((4, 6, 10))
    return Conditions(
        member_count=rng.choice((3, 5, 5, 5)),
        heartbeat_ticks=heartbeat_ticks,
        election_ticks=election_ticks,
        follower_reads=True,
        proposal_interval_us=rng.choice((2_000, 3_000, 5_000)),
        proposal_entries_max=1,
        reads=0.7,
        transfers=rng.choice((0.0, 0.02)),
        loss=rng.choice((0.0, 0.0, 0.05)),
        duplicate=rng.choice((0.0, 0.2)),
        delay_us=rng.choice((300, 2_000, 10_000)),
        in_order=rng.random() < 0.5,
        notice_link=rng.choice((0.0, 1.0)),
        real_bytes=rng.random() < 0.1,
        flush_us=100,
        strike_interval_us=rng.choice((1, 2)) * election_ticks * TICK_US,
        leader_bias=rng.choice((0.2, 0.9)),
        faults=rng.choice(FOLLOWER_READS_FAULTS),
        notices_per_tick_max=rng.choice((0, NOTICES_PER_TICK_MAX)),
    )


def _lost_volumes(rng: random.Random) -> Conditions:
    """Draw conditions under which volumes are lost while leaders change and messages are late."""
    heartbeat_ticks = rng.choice((1, 2))
    return Conditions(
        member_count=rng.choice((3, 3, 3, 5)),
        heartbeat_ticks=heartbeat_ticks,
        election_ticks=heartbeat_ticks * rng.choice((6, 10)),
        push_entries_max=rng.choice((1, 8)),
        inflight_ranges_max=rng.choice((1, 4)),
        proposal_interval_us=rng.choice((5_000, 20_000)),
        loss=rng.choice((0.0, 0.0, 0.1)),
        duplicate=rng.choice((0.0, 0.2)),
        delay_us=rng.choice((300, 2_000, 5_000)),
        in_order=rng.random() < 0.4,
        flush_us=rng.choice((100, 3_000)),
        slow_hard_state=rng.choice((0.0, 0.3)),
        keep=rng.choice(tuple(Keep)),
        strike_interval_us=int(rng.choice((4, 10, 20)) * heartbeat_ticks * TICK_US),
        leader_bias=rng.choice((0.5, 0.9)),
        faults=(
            "lose_volume",
            *(fault for fault in VOLUME_FAULTS if rng.random() < 0.35),
        ),
    )


def _older_disks(rng: random.Random) -> Conditions:
    """Draw conditions under which disks are rolled back while leaders change.

    The members that know what a rolled-back disk lacks must stay up until it has asked them, so no
    member crashes in the middle of a Ready.
    """
    heartbeat_ticks = rng.choice((1, 2))
    return Conditions(
        member_count=rng.choice((2, 3, 3, 3, 5)),
        heartbeat_ticks=heartbeat_ticks,
        election_ticks=heartbeat_ticks * rng.choice((4, 6, 10)),
        recall_ticks=RECALL_FOREVER_TICKS,
        push_entries_max=rng.choice((1, 8)),
        inflight_ranges_max=rng.choice((1, 4)),
        proposal_interval_us=rng.choice((3_000, 5_000, 20_000)),
        transfers=rng.choice((0.0, 0.05)),
        loss=rng.choice((0.0, 0.0, 0.1)),
        duplicate=rng.choice((0.0, 0.2)),
        delay_us=rng.choice((300, 2_000, 5_000)),
        in_order=rng.random() < 0.4,
        flush_us=rng.choice((100, 3_000)),
        slow_hard_state=rng.choice((0.0, 0.3)),
        checkpoint=rng.choice((0.0, 0.1)),
        keep=rng.choice(tuple(Keep)),
        strike_interval_us=int(rng.choice((4, 10, 20)) * heartbeat_ticks * TICK_US),
        leader_bias=rng.choice((0.5, 0.9)),
        ambush=rng.choice((0.0, 0.2, 0.5)),
        moments=(Moment.ELECTED.value, Moment.HANDS_OVER.value),
        faults=(
            "older_disk",
            "older_disk",
            *(fault for fault in OLDER_DISKS_FAULTS if rng.random() < 0.35),
        ),
    )


def _changes(rng: random.Random, faults: tuple[str, ...]) -> Conditions:
    """Draw conditions under which members are added and removed while leaders change."""
    heartbeat_ticks = rng.choice((1, 2))
    member_count = rng.choice((3, 4, 4, 5, 5, 6))
    return Conditions(
        member_count=member_count,
        voter_count=rng.choice((1, 2, 3, 3, 3, 4, 4, 5)) % (member_count + 1),
        heartbeat_ticks=heartbeat_ticks,
        election_ticks=heartbeat_ticks * rng.choice((4, 6)),
        push_entries_max=rng.choice((1, 8)),
        inflight_ranges_max=rng.choice((1, 4)),
        proposal_interval_us=rng.choice((3_000, 5_000, 20_000)),
        proposal_entries_max=rng.choice((1, 4)),
        transfers=rng.choice((0.0, 0.02)),
        changes=rng.choice((0.1, 0.3, 0.6)),
        loss=rng.choice((0.0, 0.0, 0.1)),
        duplicate=rng.choice((0.0, 0.2)),
        delay_us=rng.choice((300, 2_000, 2_000, 10_000)),
        in_order=rng.random() < 0.4,
        notice_link=rng.choice((0.0, 1.0)),
        real_bytes=rng.random() < 0.1,
        flush_us=rng.choice((100, 3_000)),
        slow_hard_state=rng.choice((0.0, 0.0, 0.3)),
        checkpoint=rng.choice((0.0, 0.1)),
        keep=rng.choice(tuple(Keep)),
        strike_interval_us=int(rng.choice((0, 4, 10, 20)) * heartbeat_ticks * TICK_US),
        leader_bias=rng.choice((0.5, 0.9)),
        ambush=rng.choice((0.0, 0.2, 0.5, 0.9)),
        moments=(Moment.ELECTED.value, Moment.CHANGES.value),
        faults=(
            "reshape",
            "isolate",
            *rng.choice(((), ("remove_front",) * 2)),
            *(fault for fault in faults if rng.random() < 0.25),
        ),
    )
