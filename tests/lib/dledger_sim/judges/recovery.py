"""After the faults: the group must recover, answer every request, and push without waste."""

import dataclasses

from dledger_node.raft.log_terms import EMPTY, LogEnd
from dledger_sim.group.cluster import SimCluster
from dledger_sim.group.conditions import TICK_US
from dledger_sim.judges.history import Answer, Operation
from dledger_sim.judges.violation import ViolationError

SETTLE_ELECTION_TIMEOUTS = 20
PUSH_US = 4_000
"""Longest time of one push and its flush in calm conditions."""
FAST_US = 100
"""Network delay and flush time while the pushes are counted."""
STALL_TICKS_MIN = 3
"""A group with a shorter stall time may treat pushes as lost although none was."""
APPENDS_MAX = 6
OUTSIDERS_TIMEOUTS = 4
"""Election timeouts to wait for a removed member to stand for election."""


def settle(cluster: SimCluster) -> None:
    """End all faults, and check that the group recovers in time; raises ViolationError if not."""
    calm = dataclasses.replace(
        cluster.conditions, loss=0.0, duplicate=0.0, delay_us=300, notice_link=1.0, flush_us=1_000,
        slow_hard_state=0.0, slow_change=0.0, crash_in_ready=0.0, flush_failure=0.0,
        strike_interval_us=0, state_us=100,
    )  # fmt: skip
    longest_log = max(len(member.disk.cached) for member in cluster.members.values())
    timeout_us = SETTLE_ELECTION_TIMEOUTS * 2 * calm.election_ticks * TICK_US
    timeout_us += PUSH_US * longest_log // calm.push_entries_max
    late_until_us = max(member.paused_until_us for member in cluster.members.values())
    cluster.calm(calm)
    end_us = cluster.now_us + timeout_us
    cluster.run_until(
        lambda: cluster.agreed() or (cluster.now_us >= end_us and waits_for_outsider(cluster)),
        timeout_us + TICK_US,
    )
    if not cluster.agreed():
        for member in cluster.members.values():
            member.hang_up()
        return
    operation: Operation | None = None

    def appended() -> bool:
        """Append again after a refusal: a leader refuses appends during a transfer."""
        nonlocal operation
        leader = cluster.leader()
        if leader and (operation is None or operation.answered not in (None, Answer.DONE)):
            operation = cluster.propose(leader.member_id, 1)
        return operation is not None and operation.answered is Answer.DONE and cluster.agreed()

    cluster.run_until(appended, timeout_us)
    cluster.run_until(
        lambda: not cluster.owes_answers(), timeout_us, rule="every request is answered"
    )
    if calm.rots:
        _read_everything(cluster)
        cluster.run_until(lambda: cluster.agreed() and _all_sound(cluster), timeout_us)
    if calm.snapshot_entries:
        rule = "members of a healed group have equal states"
        cluster.run_until(lambda: _equal_states(cluster), timeout_us, rule=rule)
    # Messages that a pause has held back arrive at the planned end of the pause.
    cluster.run_until(lambda: cluster.now_us > late_until_us, timeout_us)
    cluster.recovered(timeout_us)
    if calm.reshapes:
        _nobody_is_deposed(cluster, timeout_us)
    if calm.stall_ticks >= STALL_TICKS_MIN and not (calm.slowness or calm.broker_speed):
        _push_without_waste(cluster, timeout_us)


def waits_for_outsider(cluster: SimCluster) -> bool:
    """Return whether a voter lost confirmed entries that only running members have which may not
    lead: learners and removed members (AsyncFlush). By contract the group then waits for an
    administrator, because the voter cannot know whether the entries were committed.
    """
    able: list[LogEnd] = []
    unable: list[LogEnd] = []
    for member in cluster.members.values():
        raft = member.raft
        if raft is None or not member.disk.cached:
            continue
        end = LogEnd(member.disk.cached[-1].term, len(member.disk.cached) - 1)
        voters = [one.voters for one in raft.memberships.possible(raft.committed_index)]
        may_lead = any(member.member_id in one for one in voters)
        (able if may_lead else unable).append(end)
    promised = [member.disk.hard_state.promised_end for member in cluster.members.values()]
    return any(
        end is not None and max(able, default=EMPTY) < end <= max(unable, default=EMPTY)
        for end in promised
    )


def _read_everything(cluster: SimCluster) -> None:
    """Let each member read its whole log, as for a new member, so that all rot is found."""
    for member in cluster.members.values():
        if member.disk.rotten and not member.disk.damaged:
            member.disk.damaged = True
            cluster.checker.rot.counts["found_in_the_end"] += 1
            cluster.crash(member.member_id, down_us=1, told="leaves: it has read its whole log")


def _all_sound(cluster: SimCluster) -> bool:
    """Return whether no disk has rotten entries."""
    return not any(member.disk.rotten or member.disk.damaged for member in cluster.members.values())


def _equal_states(cluster: SimCluster) -> bool:
    """Return whether all members have applied what the leader has committed (rule 30)."""
    leader = cluster.leader()
    if leader is None or leader.raft is None:
        return False
    keepers = [cluster.members[one].keeper for one in leader.raft.membership.members]
    states = {
        (keeper.applied.index, b"".join(keeper.applied.machine.dump())) if keeper else None
        for keeper in keepers
    }
    return len(states) == 1 and {index for index, _ in filter(None, states)} == {
        leader.committed_index
    }


def _nobody_is_deposed(cluster: SimCluster, timeout_us: int) -> None:
    """Check rule 24: a removed member that is still running deposes no leader.

    Its earlier messages may still depose one, so all messages in transit are dropped first.
    """
    cluster.network.drop_what_travels()
    settled_us = cluster.now_us + cluster.conditions.election_ticks * TICK_US
    cluster.run_until(lambda: cluster.now_us > settled_us and cluster.agreed(), timeout_us)
    leader = cluster.leader()
    assert leader is not None
    assert leader.raft is not None
    outsiders = set(cluster.members) - set(leader.raft.membership.members)
    if not outsiders or cluster.conditions.preferred_count:
        return
    term = leader.raft.term
    end_us = cluster.now_us + OUTSIDERS_TIMEOUTS * cluster.conditions.election_ticks * TICK_US
    cluster.run_until(lambda: cluster.now_us > end_us, timeout_us)
    if not leader.leads or leader.raft.term != term:
        raise ViolationError(
            "a member outside the group deposes no leader",
            f"{leader.member_id} led term {term} until {outsiders} interfered",
        )


def _push_without_waste(cluster: SimCluster, timeout_us: int) -> None:
    """Check rule 18: without loss and delay, each entry is pushed once, without questions."""
    cluster.network.drop_what_travels()
    cluster.calm(dataclasses.replace(cluster.conditions, delay_us=FAST_US, flush_us=FAST_US))
    if not _append_and_level(cluster, timeout_us):
        return
    leader, checker = cluster.leader(), cluster.checker
    assert leader is not None
    assert leader.raft is not None
    term, link_news_count = leader.raft.term, cluster.link_news_count
    pushed_count, question_count = checker.pushes.pushed_count, checker.pushes.question_count
    append_count = min(cluster.conditions.inflight_ranges_max + 1, APPENDS_MAX)
    for _ in range(append_count):
        if not _append_and_level(cluster, timeout_us):
            return
    if cluster.leader() is not leader or leader.raft.term != term:
        return
    if cluster.link_news_count != link_news_count:  # a late link event: then the leader must ask
        return
    pushed_count = checker.pushes.pushed_count - pushed_count
    question_count = checker.pushes.question_count - question_count
    needed_count = append_count * (len(leader.raft.membership.members) - 1)
    if pushed_count != needed_count or question_count:
        raise ViolationError(
            "without faults, each entry is pushed once",
            f"{leader.member_id} pushed {pushed_count} entries where {needed_count} were needed, "
            f"and sent {question_count} CompareRequests",
        )


def _append_and_level(cluster: SimCluster, timeout_us: int) -> bool:
    """Append an entry and wait until all members hold it; return False if the leader steps down."""
    leader = cluster.leader()
    if leader is None:
        return False
    operation = cluster.propose(leader.member_id, 1)

    def level() -> bool:
        raft = leader.raft
        if raft is None or operation.answered is None:
            return False
        held = raft.match_indexes().values()
        return not leader.leads or all(index == raft.ledger_end_index for index in held)

    cluster.run_until(level, timeout_us)
    return operation.answered is Answer.DONE and leader.leads
