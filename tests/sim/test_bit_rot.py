"""Rotten log entries: how members find them and heal, and that seeds meet every case."""

import itertools
import random
from collections.abc import Iterator

import pytest

from dledger_sim.faults.acts import perform
from dledger_sim.group.cluster import SimCluster
from dledger_sim.group.conditions import TICK_US, Conditions
from dledger_sim.group.member import SimMember
from dledger_sim.group.rotting_disk import RottingDisk
from dledger_sim.judges.history import Answer, Operation
from dledger_sim.judges.rot_rules import RotRules
from dledger_sim.judges.violation import ViolationError
from dledger_sim.runs import campaign
from dledger_sim.runs.seeds import rots
from dledger_sim.runs.simulation import simulate

CONDITIONS = Conditions(faults=("rot_entry",), checkpoint=1.0)
ELECTION_US = CONDITIONS.election_ticks * TICK_US
ENTRY_COUNT = 12
OLD = 4
"""An entry far before the end of the log."""
EVENT_COUNT = 1500
SEEDS = range(1200)
WITH_READ = 1478
"""A seed in which a client's read finds a rotten entry, as in one of seventy seeds with rot."""
SEEDS_PER_CHUNK = 2500
CHUNK_COUNT = 8
SEEDS_MAX = 100
"""Seeds with rot within which a planted bug must be found."""
WHAT_HAPPENS = {
    "found_by_push", "found_by_read", "found_by_start", "found_in_the_end", "healed", "rotted",
    "rotted_entries", "set_aside", "stayed_out",
}  # fmt: skip


# -- members ---------------------------------------------------------------------------------------


class Group:
    """Three members that have restarted. One may have been away while the others wrote."""

    def __init__(self, *, away: bool = True) -> None:
        self.cluster = SimCluster(CONDITIONS, random.Random(1))
        self.until_agreed()
        self.away = next(one for one in self.cluster.members if one != self.leader.member_id)
        if away:
            self.cluster.split({self.away})
        self.append(ENTRY_COUNT)
        self.run(ELECTION_US)
        others = [one for one in self.cluster.members if one != self.away or not away]
        perform(self.cluster, ("power_cut", [(one, TICK_US) for one in others]))
        self.cluster.run_until(lambda: self.cluster.leader() is not None, 20 * ELECTION_US)

    @property
    def leader(self) -> SimMember:
        leader = self.cluster.leader()
        assert leader is not None
        return leader

    @property
    def follower(self) -> SimMember:
        members = self.cluster.members.values()
        return next(one for one in members if one is not self.leader and one.member_id != self.away)

    @property
    def counts(self) -> dict[str, int]:
        return {name: n for name, n in self.cluster.checker.rot.counts.items() if n}

    def append(self, count: int) -> None:
        operation = self.cluster.propose(self.leader.member_id, count)
        self.cluster.run_until(lambda: operation.answered is Answer.DONE, 20 * ELECTION_US)

    def rot(self, member: SimMember, index: int, *details: int) -> None:
        perform(self.cluster, ("rot_entry", member.member_id, index, 1, *details))

    def until_agreed(self) -> None:
        self.cluster.run_until(self.cluster.agreed, 40 * ELECTION_US)
        self.run(ELECTION_US)

    def run(self, duration_us: int) -> None:
        end_us = self.cluster.now_us + duration_us
        self.cluster.run_until(lambda: self.cluster.now_us >= end_us, 2 * duration_us)

    def read(self, index: int) -> Operation:
        return self.cluster.read(self.leader.member_id, index)


def test_a_leader_that_finds_rot_in_a_push_leaves_and_heals() -> None:
    group = Group()
    rotten = group.leader
    group.rot(rotten, OLD)
    group.cluster.heal_network()
    group.until_agreed()

    assert rotten.life == 2, "one restart, and one leave"
    assert group.leader is not rotten
    assert len(rotten.disk.durable) > ENTRY_COUNT
    found = {"found_by_push": 1, "set_aside": 1, "healed": 1}
    assert found.items() <= group.counts.items()
    assert not rotten.disk.rotten


def test_a_lagging_member_receives_the_original_entries() -> None:
    group = Group()
    group.rot(group.leader, OLD)
    group.cluster.heal_network()
    group.until_agreed()
    log = group.cluster.members[group.away].disk.durable

    assert [entry.chain for entry in log] == [e.chain for e in group.cluster.checker.committed]


def test_rotten_entries_that_are_never_read_have_no_effect() -> None:
    group = Group(away=False)
    group.until_agreed()
    leader = group.leader
    group.rot(leader, OLD)
    for _ in range(5):
        group.append(3)
        group.run(ELECTION_US)

    assert group.leader is leader
    assert group.counts == {"rotted": 1, "rotted_entries": 1}


def test_a_read_that_finds_rot_is_refused_and_the_member_leaves_and_heals() -> None:
    group = Group(away=False)
    group.until_agreed()
    rotten = group.leader
    group.rot(rotten, OLD)

    assert group.read(OLD - 1).answered is Answer.DONE
    assert group.read(OLD).answered is Answer.REFUSED
    group.run(2 * TICK_US)
    assert rotten.raft is None
    group.until_agreed()
    assert group.counts["found_by_read"] == group.counts["healed"] == 1
    assert group.read(OLD).answered is Answer.DONE


def test_a_start_finds_rot_near_the_checkpoint_but_not_far_before_it() -> None:
    group = Group(away=False)
    group.until_agreed()
    follower = group.follower
    group.rot(follower, OLD, TICK_US)
    group.until_agreed()
    assert (follower.disk.rotten.keys(), "found_by_start" in group.counts) == ({OLD}, False)

    group.rot(follower, len(follower.disk.durable), TICK_US)
    group.until_agreed()
    assert group.counts["found_by_start"] == group.counts["healed"] == 1
    assert not follower.disk.rotten


def test_a_damaged_member_stays_out_until_the_others_have_a_leader() -> None:
    group = Group(away=False)
    group.until_agreed()
    follower = group.follower
    log = follower.disk.durable
    group.cluster.split({group.leader.member_id})
    group.rot(follower, len(log), TICK_US)
    group.run(10 * ELECTION_US)

    assert follower.raft is None
    assert follower.disk.durable == log, "its log is unchanged"
    assert group.counts["stayed_out"] > 1
    group.cluster.heal_network()
    group.until_agreed()
    assert group.counts["healed"] == 1


def test_only_one_of_three_disks_may_be_rotten_at_a_time() -> None:
    group = Group(away=False)
    group.until_agreed()
    leader, follower = group.leader, group.follower
    group.rot(follower, OLD)
    group.rot(leader, OLD)
    perform(group.cluster, ("lose_volume", leader.member_id, TICK_US))
    assert (list(follower.disk.rotten), list(leader.disk.rotten)) == ([OLD], [])
    assert leader.raft is not None

    group.rot(follower, len(follower.disk.durable), TICK_US)
    group.until_agreed()
    assert group.counts["healed"] == 1
    group.rot(leader, OLD)
    assert list(leader.disk.rotten) == [OLD]


def test_no_entry_rots_unless_the_conditions_allow_it() -> None:
    cluster = SimCluster(Conditions(), random.Random(1))
    cluster.run_until(cluster.agreed, 20 * ELECTION_US)
    perform(cluster, ("rot_entry", "n0", 0, 1))

    assert not cluster.checker.rot.counts


# -- seeds -----------------------------------------------------------------------------------------


def assert_sound(seeds: range) -> campaign.Totals:
    task = campaign.Task(seeds=seeds, event_count=EVENT_COUNT, covered=False, rot_only=True)
    totals = campaign.run_task(task)
    assert not totals.failures
    assert totals.seed_count == sum(map(rots, seeds))
    return totals


def test_seeds_with_rot_reach_every_outcome_of_rot() -> None:
    totals = assert_sound(SEEDS)
    totals.rot_counts.update(assert_sound(range(WITH_READ, WITH_READ + 1)).rot_counts)

    assert {name for name, count in totals.rot_counts.items() if count > 0} >= WHAT_HAPPENS
    assert all(f" {name}=" in totals.told() for name in WHAT_HAPPENS)


@pytest.mark.simulation
@pytest.mark.sampled(2)
@pytest.mark.parametrize("chunk", range(CHUNK_COUNT))
def test_no_seed_with_rot_breaks_a_rule(chunk: int) -> None:
    first_seed = SEEDS.stop + chunk * SEEDS_PER_CHUNK
    totals = assert_sound(range(first_seed, first_seed + SEEDS_PER_CHUNK))

    assert totals.rot_counts["found_by_push"] > 0


def violations() -> Iterator[str]:
    """Yield the rules that seeds with rot break."""
    seeds: Iterator[int] = filter(rots, itertools.count())
    for seed in itertools.islice(seeds, SEEDS_MAX):
        try:
            simulate(seed, EVENT_COUNT)
        except ViolationError as violation:
            yield violation.rule


def first_violation() -> str:
    """Return the first rule that a seed with rot breaks, or an empty string."""
    return next(violations(), "")


def test_a_member_that_does_not_verify_its_reads_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RottingDisk, "verify", lambda *_: None)

    assert first_violation() == "a rotten entry is never served"


def test_peers_that_have_accepted_a_rotten_entry_are_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RottingDisk, "verify", lambda *_: None)
    monkeypatch.setattr(RotRules, "serves", lambda *_: None)

    assert "equal index and term mean equal logs" in violations()


def test_a_member_that_sets_its_log_aside_without_joining_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_aside = RottingDisk.set_aside

    def without_joining(disk: RottingDisk) -> None:
        hard_state = disk.hard_state
        set_aside(disk)
        disk.hard_state = hard_state

    monkeypatch.setattr(RottingDisk, "set_aside", without_joining)

    assert first_violation() == "a voter holds every committed entry that it confirmed"


def test_entries_rot_in_one_seed_of_eleven() -> None:
    share = sum(map(rots, range(4000))) / 4000

    assert 1 / 13 < share < 1 / 9
