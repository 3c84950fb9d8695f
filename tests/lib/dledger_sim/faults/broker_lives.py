"""Conditions of groups whose members are brokers, and the requests of their clients."""

import dataclasses
import random
from typing import Final

from dledger_sim.broker.administrators import DELETABLE
from dledger_sim.broker.clients import QUEUES, TOPICS, group_of
from dledger_sim.broker.returners import DEAD, RETRIES
from dledger_sim.faults.acts import Act
from dledger_sim.group.conditions import TICK_US, Conditions
from dledger_sim.group.disk import Keep
from dledger_sim.group.moments import Moment

FAULTS: Final = (
    "crash", "crash", "isolate", "split", "cut_one_way", "bridge", "reset_link", "clog",
    "swizzle_clog", "pause", "power_cut", "remove_front", "remove_front", "leave_behind",
    "fill_disk",
)  # fmt: skip
LOCKS_RATE: Final = 0.35
"""Share of the seeds in which clients mostly request locks."""
DELAYS_RATE: Final = 0.15
"""Share of the seeds in which many messages are delayed, and outcomes often doubtful."""
BATCH_MAX: Final = 3
LEVEL_MAX: Final = 2
"""The longest delay is 5 s."""


def drawn(rng: random.Random) -> Conditions:
    """Draw conditions. Elections take about as long as what clients and doors wait for."""
    drawn, share = _any(rng), rng.random()
    if share < LOCKS_RATE:
        return _with_locks(drawn, rng)
    return _with_delays(drawn, rng) if share < LOCKS_RATE + DELAYS_RATE else drawn


def _with_locks(drawn: Conditions, rng: random.Random) -> Conditions:
    """Draw conditions under which the leases of locks end: half a minute of a client is a second of
    the run or less, and answers come within the second for which a client waits for a lock. No
    member is paused for as long as a client relies on its lock.
    """
    faults = tuple(fault for fault in drawn.faults if fault != "pause")
    return dataclasses.replace(
        drawn, broker_speed=rng.choice((40, 60)), lock_rate=0.7, proposal_interval_us=10_000,
        loss=0.0, delay_us=rng.choice((100, 300)), flush_us=100, state_us=200, clock_drift=0,
        faults=faults or ("crash",),
    )  # fmt: skip


def _with_delays(drawn: Conditions, rng: random.Random) -> Conditions:
    """Draw conditions under which a leader often waits for its quorum for longer than a broker
    does, but remains leader: then the broker does not know whether a message was delivered.
    """
    return dataclasses.replace(
        drawn, broker_speed=rng.choice((20, 40)), lock_rate=0.0, delay_rate=0.6,
        election_ticks=20, recall_ticks=0, heartbeat_ticks=1, leader_bias=0.9,
        faults=("clog", "cut_one_way", *drawn.faults),
    )  # fmt: skip


def _any(rng: random.Random) -> Conditions:
    heartbeat_ticks = rng.choice((1, 2))
    election_ticks = heartbeat_ticks * rng.choice((4, 6, 10))
    return Conditions(
        member_count=rng.choice((3, 3, 3, 4, 5)),
        heartbeat_ticks=heartbeat_ticks,
        election_ticks=election_ticks,
        recall_ticks=rng.choice((0, election_ticks)),
        push_entries_max=rng.choice((4, 16, 64)),
        inflight_ranges_max=rng.choice((1, 4)),
        clock_drift=rng.choice((0, 0, 50)),
        client_count=rng.choice((2, 3)),
        proposal_interval_us=rng.choice((3_000, 6_000)),
        transfers=rng.choice((0.0, 0.0, 0.05)),
        loss=rng.choice((0.0, 0.0, 0.05)),
        duplicate=rng.choice((0.0, 0.2)),
        delay_us=rng.choice((300, 1_000, 3_000)),
        in_order=rng.random() < 0.5,
        flush_us=rng.choice((100, 1_000, 5_000)),
        slow_hard_state=rng.choice((0.0, 0.0, 0.3)),
        checkpoint=rng.choice((0.0, 0.1)),
        keep=rng.choice(tuple(Keep)),
        crash_in_ready=rng.choice((0.0, 0.0, 0.001)),
        snapshot_entries=rng.choice((5, 10, 30)),
        snapshots_reserved=rng.choice((1, 2)),
        chunk_bytes=rng.choice((512, 4096)),
        state_us=rng.choice((200, 200, 3_000)),
        broker_speed=rng.choice((5, 10, 20)),
        lock_rate=0.05,
        delay_rate=rng.choice((0.0, 0.1, 0.4)),
        strike_interval_us=int(rng.choice((3, 6, 12)) * heartbeat_ticks * TICK_US),
        leader_bias=rng.choice((0.3, 0.6, 0.9)),
        ambush=rng.choice((0.0, 0.2, 0.5)),
        moments=(Moment.ELECTED.value, Moment.FETCHES.value, Moment.APPEND_SENT.value),
        faults=tuple(fault for fault in FAULTS if rng.random() < 0.3) or ("crash",),
    )


def request(conditions: Conditions, believers: list[str], random_: "random.Random") -> Act:
    """Draw a request of a client to any member, which need not lead: each is a door."""
    member_id = random_.choice(conditions.member_ids)
    if believers and random_.random() < 0.3:
        member_id = random_.choice(believers)
    client = random_.randrange(conditions.client_count)
    kind = random_.random()
    if kind < conditions.lock_rate:
        return _lock_request(member_id, client, random_.random())
    topic, queue_id = random_.choice(TOPICS), random_.randrange(QUEUES)
    if conditions.admin_rate:
        topic = random_.choice((*TOPICS, DELETABLE))
        kind = random_.random()
        if kind < conditions.admin_rate:
            return _admin_request(member_id, client, kind / conditions.admin_rate)
    if conditions.return_rate and random_.random() < conditions.return_rate:
        return _return_request(member_id, client, random_)
    kind = random_.random()
    if kind < 0.55:
        delayed = topic != DELETABLE and random_.random() < conditions.delay_rate
        level = random_.randint(1, LEVEL_MAX) if delayed else 0
        count = random_.randint(2, BATCH_MAX) if not level and random_.random() < 0.2 else 1
        return ("send", member_id, client, topic, queue_id, level, count)
    if kind < 0.75:
        return ("pull", member_id, client, topic, queue_id, int(random_.random() < 0.5))
    if kind < 0.92:
        return ("commit", member_id, client, topic, queue_id)
    return ("query", member_id, client, topic, queue_id)


def administered(rng: random.Random) -> Conditions:
    """Draw conditions with name servers, deletions, and messages that consumers return."""
    return dataclasses.replace(
        _any(rng), broker_speed=20, lock_rate=0.02, admin_rate=rng.choice((0.05, 0.15)),
        return_rate=rng.choice((0.2, 0.4)), name_servers=rng.choice((0, 1, 2, 3)),
        thread_us=rng.choice((200, 200, 20_000)),
    )  # fmt: skip


def _admin_request(member_id: str, client: int, kind: float) -> Act:
    if kind < 0.3:
        return ("delete_topic", member_id)
    if kind < 0.5:
        return ("set_topic", member_id)
    if kind < 0.7:
        return ("delete_group", member_id, group_of(client))
    return ("set_group", member_id, group_of(client))


def _return_request(member_id: str, client: int, random_: "random.Random") -> Act:
    if random_.random() < 0.3:
        return ("pull", member_id, client, *RETRIES, 0)
    level = DEAD if random_.random() < 0.2 else random_.randint(1, LEVEL_MAX)
    return ("give_back", member_id, client, level)


def _lock_request(member_id: str, client: int, kind: float) -> Act:
    if kind < 0.15:
        return ("beat", member_id, client)
    return ("lock" if kind < 0.85 else "unlock", member_id, client)
